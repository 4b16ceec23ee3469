// What a thread was in phases of their own, so far: the time that is not a callback's or a hook's though it lies in
// one.

#ifndef TRAINPERF_BINDINGS_APART_H_
#define TRAINPERF_BINDINGS_APART_H_

#include <Python.h>

#include <cstdint>

namespace trainperf {

// Of hooks/apart.py, whose Apart is made of it. Each function requires the GIL; without one, it is the thread that
// guards it: begin and end do nothing on another one.
struct ApartState {
  PyObject_HEAD unsigned long thread;  // of who measures; 0: nobody does
  Py_ssize_t measured;                 // stretches that it is in the middle of measuring
  Py_ssize_t depth;                    // of those that have begun and not ended
  int64_t ns;                          // of those that have ended; of nested ones the outermost counts
  int64_t since_ns;
  int64_t fetched_ns;  // fetches within `ns`
  int64_t fetched_since_ns;
  PyObject* evaluate;  // dict: modules that a callback has switched, and how deep it was then
};

PyTypeObject* ApartType();  // nullptr before BindApart()

inline ApartState* AsApart(PyObject* object) { return reinterpret_cast<ApartState*>(object); }

void BeginApart(ApartState* apart);
void EndApart(ApartState* apart);

// Ends those that have begun since it was `depth`. Without memory the modules stay, and end it once more than they
// began.
void LeaveApart(ApartState* apart, Py_ssize_t depth);

// In phases of their own and in fetches, so far. Only differences mean anything, of when it is in none of the former.
int64_t ElsewhereNs(const ApartState& apart);

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_APART_H_
