# Flags of our own code, as a target to link; warnings are errors.
add_library(trainperf_flags INTERFACE)
target_compile_options(trainperf_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>)
target_include_directories(trainperf_flags INTERFACE ${PROJECT_SOURCE_DIR}/cpp)
