# hvd_add_library and hvd_add_test: one target per folder, so that target_link_libraries is the architecture.
#
# Each target is compiled as one file (CMAKE_UNITY_BUILD), which takes a third of the time. So what the files of a target
# keep in anonymous namespaces must differ in name; the compiler says so when it does not. A target or file for which
# that is too much says UNITY_BUILD OFF or SKIP_UNITY_BUILD_INCLUSION ON in its CMakeLists.txt.
#
# Under clang-tidy the product is compiled file by file: the static analyzer starts only at functions of the main file, and
# in a unity build that file is empty. The tests stay one file each: the sanitizers see what they really do.
function(hvd_analyse_alone target)
  if(CMAKE_CXX_CLANG_TIDY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()

# A clone at another path finds what the last one compiled: no object holds where its sources lay.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
find_program(HVD_CCACHE ccache)
if(HVD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(hvd_ccache "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${HVD_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${hvd_ccache}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${hvd_ccache}")
endif()

# Compile settings shared by everything of ours; third-party headers are SYSTEM and escape the warnings.
add_library(hvd_options INTERFACE)
target_include_directories(hvd_options INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/runtime/include")
target_compile_features(hvd_options INTERFACE cxx_std_20)
target_compile_options(hvd_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -fvisibility=hidden -fstack-protector-strong)
target_compile_definitions(hvd_options INTERFACE HVD_VERSION="${PROJECT_VERSION}")
target_link_libraries(hvd_options INTERFACE pthread)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(hvd_options INTERFACE -Wno-restrict)  # false alarms on std::string operator+ at -O3 (GCC 105651)
endif()
if(HVD_WARNINGS_AS_ERRORS)
  target_compile_options(hvd_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(hvd_options INTERFACE -Wthread-safety)
endif()
if(HVD_SANITIZE)
  target_compile_options(hvd_options INTERFACE -fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -Wno-maybe-uninitialized)  # g++ 12 sees ghosts in <regex> when it instruments
  target_link_options(hvd_options INTERFACE -fsanitize=${HVD_SANITIZE})
  target_compile_definitions(hvd_options INTERFACE _GLIBCXX_ASSERTIONS HVD_SANITIZED)
endif()
if(HVD_FAILPOINTS)
  target_compile_definitions(hvd_options INTERFACE HVD_FAILPOINTS)
endif()
if(HVD_BUILD_FUZZ)
  target_compile_options(hvd_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  target_link_options(hvd_options INTERFACE -fsanitize=address,undefined)
endif()

# hvd_add_library(<name> SOURCES a.cc ... [PUBLIC targets...] [PRIVATE targets...])
# Makes the static library hvd_<name> with the alias hvd::<name>; without SOURCES, an interface library.
function(hvd_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(ARG_SOURCES)
    add_library(hvd_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(hvd_${name} PUBLIC hvd_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
    hvd_analyse_alone(hvd_${name})
  else()
    add_library(hvd_${name} INTERFACE)
    target_link_libraries(hvd_${name} INTERFACE hvd_options ${ARG_PUBLIC})
  endif()
  add_library(hvd::${name} ALIAS hvd_${name})
endfunction()

# hvd_one_thread(<name>): the program has one thread, in which ThreadSanitizer finds nothing, so that build leaves it out.
# Without sanitizers it ends when it starts another one.
function(hvd_one_thread name)
  if(HVD_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    set_tests_properties(${name} PROPERTIES DISABLED TRUE)
  elseif(NOT HVD_SANITIZE)
    target_link_libraries(${name} PRIVATE hvd_no_threads)
  endif()
endfunction()

# hvd_add_test(<name> [FOLDER folder] SOURCES a_test.cc ... LIBS targets... [LABELS unit|multi|slow ...]
#              [READS_SOURCE_DIR a_test.cc ...] [ONE_THREAD])
# One Catch2 program per test folder, named by the folder itself or, with FOLDER, by the one above. The labels say what it
# needs; `unit` has no ports, no sleeps and no order.
function(hvd_add_test name)
  cmake_parse_arguments(ARG "ONE_THREAD" "FOLDER;TIMEOUT" "SOURCES;LIBS;LABELS;READS_SOURCE_DIR" ${ARGN})
  if(ARG_FOLDER)
    list(TRANSFORM ARG_SOURCES PREPEND "${ARG_FOLDER}/")
    list(TRANSFORM ARG_READS_SOURCE_DIR PREPEND "${ARG_FOLDER}/")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING)  # and so emulated
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hvd_options ${ARG_LIBS} hvd_catch_main)
  # Only the files that read beside themselves know where they lie: the others compile to the same anywhere.
  foreach(source IN LISTS ARG_READS_SOURCE_DIR)
    cmake_path(GET source PARENT_PATH folder)
    set_source_files_properties("${source}" PROPERTIES
      COMPILE_DEFINITIONS HVD_TEST_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}/${folder}")
  endforeach()
  if(HVD_SANITIZE MATCHES "undefined")
    # A fifth of the compile time, and no use in a test: what these find there, AddressSanitizer finds too.
    target_compile_options(${name} PRIVATE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(ARG_ONE_THREAD)
    hvd_one_thread(${name})
  endif()
endfunction()

# hvd_add_fuzzer(<name> SOURCES x_fuzz.cc LIBS targets...): a libFuzzer program named fuzz_<name>. The target `fuzzers` is all
# of them with what they need, and no more: clang does not vectorise the kernels' loops under a sanitizer, and says so.
function(hvd_add_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE hvd_options ${ARG_LIBS})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers fuzz_${name})
endfunction()
