# What we build on: the system's packages where they are, else sources out of packages of PyPI, pinned by hash.
include(FetchContent)

# Downloads an archive, and says in one line what to install where that fails; `result` is its path.
function(trainperf_download result what packages url sha256)
  get_filename_component(file ${url} NAME)
  set(path ${CMAKE_BINARY_DIR}/downloads/${file})
  if(EXISTS ${path})
    file(SHA256 ${path} found)
  endif()
  if(NOT found STREQUAL sha256)
    file(DOWNLOAD ${url} ${path} INACTIVITY_TIMEOUT 60 STATUS status)
    list(GET status 0 code)
    list(GET status 1 why)
    if(code EQUAL 0)
      file(SHA256 ${path} found)
      if(NOT found STREQUAL sha256)
        set(code 1)
        set(why "its SHA-256 is ${found}")
      endif()
    endif()
    if(NOT code EQUAL 0)
      file(REMOVE ${path})
      message(FATAL_ERROR "trainperf needs ${what}, which is not installed and could not be downloaded (${why}): "
        "install ${packages}, or make ${url} reachable")
    endif()
  endif()
  set(${result} ${path} PARENT_SCOPE)
endfunction()

# Cross-compiled, a CPython is its headers (Python_INCLUDE_DIR) and the suffix of its modules.
if(CMAKE_CROSSCOMPILING)
  find_package(Python 3.10 REQUIRED COMPONENTS Development.Module)
else()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.Embed)
endif()
find_package(Threads REQUIRED)

# pybind11 comes from PyPI, into the environment of the Python that we build for.
if(NOT pybind11_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
    OUTPUT_VARIABLE pybind11_cmakedir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(pybind11_cmakedir)
    set(pybind11_DIR ${pybind11_cmakedir})
  endif()
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 3 CONFIG REQUIRED)

if(NOT TRAINPERF_FETCH)
  find_package(absl CONFIG QUIET)
  find_package(SQLite3 QUIET)
endif()

if(absl_FOUND)
  message(STATUS "Abseil: the system's, ${absl_DIR}")
else()
  message(STATUS "Abseil: fetched, out of gRPC 1.85.3's package on PyPI")
  trainperf_download(abseil_archive "Abseil" "libabsl-dev (Debian, Ubuntu), abseil-cpp-devel (Fedora) or libabseil (conda)"
    https://files.pythonhosted.org/packages/1e/48/8e14d92cca434b448c7018654da80f574aea3663f7d1f87ed044455c45c6/grpcio-1.85.3.tar.gz
    8e18f15d1b09b8771edbf59d634b26cbe4903bc2577cb667264934a6655eb8b4)
  FetchContent_Declare(grpcio URL ${abseil_archive} SOURCE_SUBDIR no-build-files DOWNLOAD_EXTRACT_TIMESTAMP OFF)
  FetchContent_MakeAvailable(grpcio)
  # The package has the sources without their CMake files: all that our parts stand on becomes one library.
  set(abseil ${grpcio_SOURCE_DIR}/third_party/abseil-cpp)
  set(abseil_sources)
  foreach(part base container crc debugging hash numeric profiling status strings synchronization time types)
    file(GLOB_RECURSE of_part ${abseil}/absl/${part}/*.cc)
    list(APPEND abseil_sources ${of_part})
  endforeach()
  list(FILTER abseil_sources EXCLUDE REGEX "(_test|_testing|test_.*|_benchmark|_benchmarks|_mock.*|print_hash_of|gentables|matchers|testing_.*|_win)[^/]*\\.cc$")
  add_library(trainperf_abseil STATIC ${abseil_sources})
  target_include_directories(trainperf_abseil SYSTEM PUBLIC ${abseil})
  target_link_libraries(trainperf_abseil PUBLIC Threads::Threads)
  foreach(name bits flat_hash_map inlined_vector status statusor str_format strings)
    add_library(absl::${name} ALIAS trainperf_abseil)
  endforeach()
endif()

# trainperf_sqlite: whichever it is, under a name that no CMake release renames.
if(SQLite3_FOUND)
  message(STATUS "SQLite: the system's, ${SQLite3_VERSION}")
  add_library(trainperf_sqlite INTERFACE)
  target_include_directories(trainperf_sqlite SYSTEM INTERFACE ${SQLite3_INCLUDE_DIRS})
  target_link_libraries(trainperf_sqlite INTERFACE ${SQLite3_LIBRARIES})
else()
  message(STATUS "SQLite: fetched, 3.50.4, out of sqlean.py's package on PyPI")
  trainperf_download(sqlite_archive "SQLite" "libsqlite3-dev (Debian, Ubuntu), sqlite-devel (Fedora) or sqlite (conda)"
    https://files.pythonhosted.org/packages/ec/61/5332f923ec20c0b3ae9b3cf05731049bd4d17714dce1dbbc69129264664e/sqlean_py-3.50.4.5.tar.gz
    9764b565e7ab430ab6e9e43cb2816199c2b39926dffc93c212a52f0019278459)
  FetchContent_Declare(sqlean URL ${sqlite_archive} SOURCE_SUBDIR no-build-files DOWNLOAD_EXTRACT_TIMESTAMP OFF)
  FetchContent_MakeAvailable(sqlean)
  # The package's own extensions are started by lines behind the end of SQLite's source: those stay out.
  set(sqlite_source ${CMAKE_BINARY_DIR}/sqlite3.c)
  file(READ ${sqlean_SOURCE_DIR}/sqlite/sqlite3.c source)
  string(FIND "${source}" "#include \"init.h\"" end REVERSE)
  string(SUBSTRING "${source}" 0 ${end} source)
  if(NOT EXISTS ${sqlite_source})
    file(WRITE ${sqlite_source} "${source}")
  endif()
  add_library(trainperf_sqlite STATIC ${sqlite_source})
  target_include_directories(trainperf_sqlite SYSTEM PUBLIC ${sqlean_SOURCE_DIR}/sqlite)
  # What nobody here uses: loading of extensions (dlopen) and the shared cache.
  target_compile_definitions(trainperf_sqlite PRIVATE SQLITE_OMIT_LOAD_EXTENSION SQLITE_OMIT_SHARED_CACHE SQLITE_DQS=0)
  target_link_libraries(trainperf_sqlite PUBLIC Threads::Threads)
endif()

# trainperf_simdjson: finds the structure of JSON text.
if(NOT TRAINPERF_FETCH)
  find_package(simdjson CONFIG QUIET)
endif()
if(simdjson_FOUND)
  message(STATUS "simdjson: the system's, ${simdjson_DIR}")
  add_library(trainperf_simdjson INTERFACE)
  target_link_libraries(trainperf_simdjson INTERFACE simdjson::simdjson)
else()
  message(STATUS "simdjson: fetched, 3.12.3, out of a package of PyPI")
  trainperf_download(simdjson_archive "simdjson" "libsimdjson-dev (Debian, Ubuntu), simdjson-devel (Fedora) or simdjson (conda)"
    https://files.pythonhosted.org/packages/9c/24/65e3cad88e74ef8ca59fefded953eb78ebface8a3199c3a97fe318a7387b/pysimdjson-7.0.2.tar.gz
    44cf276e48912a3b9c7ca362c14da8420a7ac15a9f1a16ec95becff86db3904a)
  FetchContent_Declare(pysimdjson
    URL ${simdjson_archive}
    DOWNLOAD_EXTRACT_TIMESTAMP OFF)
  FetchContent_MakeAvailable(pysimdjson)
  add_library(trainperf_simdjson STATIC ${pysimdjson_SOURCE_DIR}/simdjson/simdjson.cpp)
  target_include_directories(trainperf_simdjson SYSTEM PUBLIC ${pysimdjson_SOURCE_DIR}/simdjson)
endif()

# trainperf_inflate: gzip at two to three times the speed of zlib; with TRAINPERF_ISAL=1 it is ISA-L, else zlib-ng.
if(NOT TRAINPERF_FETCH)
  find_path(TRAINPERF_ISAL_INCLUDE isa-l/igzip_lib.h)
  find_library(TRAINPERF_ISAL_LIBRARY isal)
endif()
if(TRAINPERF_ISAL_INCLUDE AND TRAINPERF_ISAL_LIBRARY)
  message(STATUS "ISA-L: the system's, ${TRAINPERF_ISAL_LIBRARY}")
  add_library(trainperf_inflate INTERFACE)
  target_include_directories(trainperf_inflate SYSTEM INTERFACE ${TRAINPERF_ISAL_INCLUDE})
  target_link_libraries(trainperf_inflate INTERFACE ${TRAINPERF_ISAL_LIBRARY})
  target_compile_definitions(trainperf_inflate INTERFACE TRAINPERF_ISAL=1)
else()
  message(STATUS "zlib-ng: fetched, out of a package of PyPI")
  set(BUILD_TESTING OFF)
  set(WITH_GZFILEOP OFF)
  set(ZLIB_ALIASES OFF)
  set(BUILD_SHARED_LIBS OFF)
  trainperf_download(zlib_ng_archive "zlib-ng" "libisal-dev (Debian, Ubuntu), isa-l-devel (Fedora) or isa-l (conda)"
    https://files.pythonhosted.org/packages/25/c8/2914b13c7972dccf8774947ffe781b761b483aa190e55a4aa89886982daa/zlib_ng-1.1.0.tar.gz
    08a3a8468d4f130e3dc80d28ec42fcc7a878a57dfed616233e791066327d78a3)
  FetchContent_Declare(zlib_ng_package SYSTEM EXCLUDE_FROM_ALL
    URL ${zlib_ng_archive}
    SOURCE_SUBDIR src/zlib_ng/zlib-ng
    DOWNLOAD_EXTRACT_TIMESTAMP OFF)
  FetchContent_MakeAvailable(zlib_ng_package)
  add_library(trainperf_inflate INTERFACE)
  if(TARGET zlib-ng-static)
    target_link_libraries(trainperf_inflate INTERFACE zlib-ng-static)
  else()
    target_link_libraries(trainperf_inflate INTERFACE zlib-ng)
  endif()
  target_compile_definitions(trainperf_inflate INTERFACE TRAINPERF_ISAL=0)
endif()

if(TRAINPERF_TESTS)
  find_package(ZLIB REQUIRED)
  if(CMAKE_CROSSCOMPILING)
    set(TRAINPERF_GOOGLETEST /usr/src/googletest CACHE PATH "GoogleTest's sources: Debian's package googletest has them")
    add_subdirectory(${TRAINPERF_GOOGLETEST} googletest EXCLUDE_FROM_ALL)
  else()
    find_package(GTest REQUIRED)
    find_package(benchmark QUIET)
  endif()
endif()
