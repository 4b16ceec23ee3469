// The two macros that Abseil keeps to itself.

#ifndef TRAINPERF_BASE_STATUS_MACROS_H_
#define TRAINPERF_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TRAINPERF_CONCAT_INNER(a, b) a##b
#define TRAINPERF_CONCAT(a, b) TRAINPERF_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define TRAINPERF_RETURN_IF_ERROR(expression)            \
  do {                                                   \
    absl::Status trainperf_status = (expression);        \
    if (!trainperf_status.ok()) return trainperf_status; \
  } while (false)

// TRAINPERF_ASSIGN_OR_RETURN(auto gil, GilView::Locate());
#define TRAINPERF_ASSIGN_OR_RETURN(target, expression) \
  TRAINPERF_ASSIGN_OR_RETURN_INNER(TRAINPERF_CONCAT(trainperf_or_, __LINE__), target, expression)
#define TRAINPERF_ASSIGN_OR_RETURN_INNER(temporary, target, expression) \
  auto temporary = (expression);                                        \
  if (!temporary.ok()) return std::move(temporary).status();            \
  target = *std::move(temporary)

#endif  // TRAINPERF_BASE_STATUS_MACROS_H_
