# Toolchain: Zig's C and C++ compiler (PyPI's ziglang), which builds for any glibc and for both processors on one machine.
# scripts/wheel.sh builds the wheels with it:
#
#   cmake -S . -B build/wheel/x86_64 --toolchain cmake/zig.cmake -DTRAINPERF_ZIG=/path/of/ziglang/zig \
#     -DTRAINPERF_ZIG_TARGET=x86_64-linux-gnu.2.28 ...
#
# libc++ is linked in statically, so a module needs nothing but glibc.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TRAINPERF_ZIG TRAINPERF_ZIG_TARGET)
if(NOT TRAINPERF_ZIG OR NOT TRAINPERF_ZIG_TARGET)
  message(FATAL_ERROR "cmake/zig.cmake needs -DTRAINPERF_ZIG=.../ziglang/zig and -DTRAINPERF_ZIG_TARGET=x86_64-linux-gnu.2.28")
endif()
string(REGEX MATCH "^[^-]+" processor ${TRAINPERF_ZIG_TARGET})
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${processor})

# CMake wants programs of one word each.
set(tools ${CMAKE_BINARY_DIR}/zig)
foreach(tool cc c++ ar ranlib)
  set(arguments)
  if(tool MATCHES "^c")
    # Zig adds traps of its own in builds without optimization.
    set(arguments "-target ${TRAINPERF_ZIG_TARGET} -fno-sanitize=undefined")
  endif()
  file(CONFIGURE OUTPUT ${tools}/${tool} CONTENT [=[
#!/bin/sh
exec "@TRAINPERF_ZIG@" @tool@ @arguments@ "$@"
]=] @ONLY)
  file(CHMOD ${tools}/${tool} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER ${tools}/cc)
set(CMAKE_CXX_COMPILER ${tools}/c++)
set(CMAKE_AR ${tools}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${tools}/ranlib CACHE FILEPATH "")

# Nothing of the machine that builds gets in: it has another glibc, or another processor.
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH ${CMAKE_BINARY_DIR}/nothing)
