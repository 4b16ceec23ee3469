# TRAINPERF_SANITIZE reaches every target of this build, fetched ones too: Abseil's containers must be compiled alike on
# both sides.
if(TRAINPERF_SANITIZE)
  if(NOT TRAINPERF_SANITIZE MATCHES "^(address|thread)$")
    message(FATAL_ERROR "TRAINPERF_SANITIZE is '${TRAINPERF_SANITIZE}'; it can be address or thread")
  endif()
  add_compile_options(-fsanitize=${TRAINPERF_SANITIZE} -fno-omit-frame-pointer)
  # GCC sees unset memory where there is none once code is instrumented, as in pybind11's small vectors. All other
  # builds have the warning.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${TRAINPERF_SANITIZE})
endif()
