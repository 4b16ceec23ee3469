# Flags of our own code, as a target to link. Warnings are errors where we build (presets, tests), and never where a user
# does: the next compiler knows warnings that this one does not.
add_library(trainperf_flags INTERFACE)
target_compile_options(trainperf_flags INTERFACE
  -Wall -Wextra $<$<BOOL:${TRAINPERF_WERROR}>:-Werror> -Wshadow -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>)
target_include_directories(trainperf_flags INTERFACE ${PROJECT_SOURCE_DIR}/cpp)
