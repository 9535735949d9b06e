include(GNUInstallDirs)
# The place that src/device/backend_module.cpp looks in, seen from a program's folder: ../lib/stowage.
set(STOWAGE_MODULE_DIR ${PROJECT_BINARY_DIR}/lib/stowage)

# What every target of the project is compiled with, and what the product's own sources are beyond that.
add_library(stowage_options INTERFACE)
add_library(stowage_product_options INTERFACE)
target_link_libraries(stowage_product_options INTERFACE stowage_options)
target_compile_features(stowage_options INTERFACE cxx_std_20)
# stowage_host_options(target option …): for C++, and for the host's half of CUDA sources.
function(stowage_host_options target)
  foreach(option ${ARGN})
    target_compile_options(${target} INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:${option}> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${option}>)
  endforeach()
endfunction()
stowage_host_options(stowage_options -Wall -Wextra)
target_compile_options(stowage_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>)
if(STOWAGE_WARNINGS_AS_ERRORS)
  stowage_host_options(stowage_options -Werror)
endif()
# g++ 12 takes "text" + std::string for overlapping copies (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  stowage_host_options(stowage_options -Wno-restrict)
endif()
if(STOWAGE_SANITIZER)
  # g++ 12 warns falsely of std::optional, and of replaced operators new, where a sanitizer or -O1 keeps
  # it from inlining.
  stowage_host_options(stowage_options -Wno-maybe-uninitialized -Wno-mismatched-new-delete -fno-omit-frame-pointer)
endif()
# clang alone reads the lock annotations of src/base/mutex.h. Its other warnings are not ours: g++ is the compiler.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(stowage_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-error;-Wno-unknown-warning-option;-Wno-deprecated-declarations;-Wno-pass-failed;-Wthread-safety;-Werror=thread-safety>")
endif()
if(STOWAGE_SANITIZER STREQUAL "address")
  stowage_host_options(stowage_options -fsanitize=address)
  # Not for the tests' own sources: they would take twice as long to compile.
  stowage_host_options(stowage_product_options -fsanitize=undefined -fno-sanitize-recover=all)
  target_link_options(stowage_options INTERFACE -fsanitize=address,undefined)
elseif(STOWAGE_SANITIZER STREQUAL "thread")
  stowage_host_options(stowage_options -fsanitize=thread)
  target_link_options(stowage_options INTERFACE -fsanitize=thread)
endif()
if(STOWAGE_SANITIZER AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT STOWAGE_LIBFUZZER)
  # The shared runtime, as g++ takes it: beside the other no test can replace operator new.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-runtime-dir
    OUTPUT_VARIABLE runtime_dir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  target_link_options(stowage_options INTERFACE -shared-libsan -Wl,-rpath,${runtime_dir})
endif()
if(STOWAGE_LIBFUZZER)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "STOWAGE_LIBFUZZER needs clang and its fuzzer runtime: configure with CMAKE_CXX_COMPILER=clang++")
  endif()
  stowage_host_options(stowage_options -fsanitize=fuzzer-no-link)
endif()

# stowage_optimise(target): optimises the target under a sanitizer, where all else is built at -O0. clang's -O1 compiles no
# faster than its -O2 and inlines nothing, so that each access through a container is an instrumented call.
function(stowage_optimise target)
  if(STOWAGE_SANITIZER)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-O2> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-O1>)
  endif()
endfunction()

# stowage_compile_fast(target …): for what reads options and writes text, which is quick however it is compiled. Templates of
# CLI11 and of the JSON library take a third less at -O1.
function(stowage_compile_fast)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endforeach()
endfunction()

# stowage_library(name [INTERNAL] [COMPUTES] SOURCES … [LINK …] [PRIVATE …]): a folder's static library. LINK names
# the folders (and packages) that its headers or sources use. INTERNAL ones are not installed: they are a part
# of a module or of a program. One that COMPUTES is optimised under a sanitizer too (stowage_optimise), where tests would else wait for it; the others
# compile in half the time. Sources may be .cu where STOWAGE_WITH_CUDA.
function(stowage_library name)
  cmake_parse_arguments(ARG "INTERNAL;COMPUTES" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  string(REGEX REPLACE "^stowage_" "" short_name ${name})
  add_library(stowage::${short_name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:stowage_product_options> ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${short_name})
  if(STOWAGE_WITH_CUDA)
    set_target_properties(${name} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  endif()
  if(ARG_COMPUTES)
    stowage_optimise(${name})
  endif()
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY STOWAGE_LIBRARIES ${name})
  endif()
endfunction()

# stowage_module(name [ENTRY function] SOURCES … LINK …): what programs load when they first ask for it. It exports the
# entry, stowage_backend_module where none is named, and nothing else.
function(stowage_module name)
  cmake_parse_arguments(ARG "" "ENTRY" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_ENTRY)
    set(ARG_ENTRY stowage_backend_module)
  endif()
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE stowage_product_options ${ARG_LINK})
  set(exports ${CMAKE_CURRENT_BINARY_DIR}/${name}.map)
  file(WRITE ${exports} "{ global: ${ARG_ENTRY}; local: *; };\n")
  # With a RUNPATH, LD_LIBRARY_PATH can put another CUDA runtime in the place of the one built against.
  target_link_options(${name} PRIVATE -Wl,--version-script=${exports} -Wl,--enable-new-dtags)
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${STOWAGE_MODULE_DIR} INSTALL_RPATH "$ORIGIN;$ORIGIN/../../${CMAKE_INSTALL_LIBDIR};/usr/local/cuda/lib64")
  set_property(GLOBAL APPEND PROPERTY STOWAGE_MODULES ${name})
endfunction()

# stowage_program(name SOURCES … LINK …): a program for users; it is installed.
function(stowage_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE stowage_product_options ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY STOWAGE_PROGRAMS ${name})
endfunction()

# stowage_test(name [COMPUTES] SOURCES … LINK … [LABELS …] [ENVIRONMENT NAME=value …] [TIMEOUT seconds] [COST number]): one
# GoogleTest program, each test found by CTest; those with a higher COST start first. CI runs a test in one of its builds:
#   LABELS release      optimised as for users: what judges plans by the hundred, or runs whole programs
#   LABELS bits         there and under the address sanitizer: kernels, which each compiler vectorises in its own way
#   LABELS concurrent   under the address sanitizer and under the thread sanitizer, whose target concurrent_tests builds them alone
#   LABELS long         not at all: scripts/test alone runs it
#   else                under the address sanitizer
# A program that COMPUTES what it expects is optimised under a sanitizer (stowage_optimise).
add_custom_target(concurrent_tests)
# Half the time to compile them; what they test is optimised as it is for users. g++ 12 warns falsely at -O1.
add_library(stowage_test_options INTERFACE)
if(STOWAGE_FEWER_DRAWS)
  target_compile_definitions(stowage_test_options INTERFACE STOWAGE_FEWER_DRAWS)
endif()
stowage_host_options(stowage_test_options $<$<CONFIG:Release>:-O1> -Wno-array-bounds -Wno-maybe-uninitialized
  -Wno-mismatched-new-delete -Wno-stringop-overflow)
if(STOWAGE_BUILD_TESTS AND STOWAGE_PRECOMPILE_TESTS)
  add_library(stowage_precompiled_tests OBJECT ${PROJECT_SOURCE_DIR}/tests/precompiled.cpp)
  target_link_libraries(stowage_precompiled_tests PRIVATE stowage_options stowage_test_options GTest::gmock GTest::gtest_main)
  set_target_properties(stowage_precompiled_tests PROPERTIES UNITY_BUILD OFF)
  target_precompile_headers(stowage_precompiled_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests/precompiled.h)
  # A precompiled header that ccache has from another clone is older than the files that it is made of; clang would refuse it.
  target_compile_options(stowage_test_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
# stowage_runs_here(variable LABELS…): whether this build runs tests with these labels.
function(stowage_runs_here variable)
  set(${variable} ON PARENT_SCOPE)
  if(NOT "bits" IN_LIST ARGN)
    if(STOWAGE_SANITIZER AND "release" IN_LIST ARGN OR STOWAGE_TESTS STREQUAL "release" AND NOT "release" IN_LIST ARGN)
      set(${variable} OFF PARENT_SCOPE)
    endif()
  endif()
endfunction()
function(stowage_test name)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT;COST" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE stowage_options stowage_test_options ${ARG_LINK} GTest::gmock GTest::gtest_main)
  if(ARG_COMPUTES AND STOWAGE_SANITIZER)
    stowage_optimise(${name})  # and so cannot use the precompiled header, which is not optimised
  elseif(TARGET stowage_precompiled_tests)
    target_precompile_headers(${name} REUSE_FROM stowage_precompiled_tests)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  stowage_runs_here(runs_here ${ARG_LABELS})
  if(NOT runs_here)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if(NOT ARG_COST)
    set(ARG_COST 0)
  endif()
  if("concurrent" IN_LIST ARG_LABELS)
    add_dependencies(concurrent_tests ${name})
  endif()
  # An instrumented process takes longer to begin than most tests, so there a program is one test, of all that it has.
  if(STOWAGE_SANITIZER)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES
      TIMEOUT 900 COST ${ARG_COST} LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}")
    return()
  endif()
  # Names are GoogleTest's (tests/support/printed_name.h): CMake would add what parameters print as, addresses among it.
  # Listing tests takes a moment, but on a busy machine the default of 5 s has been too short.
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  # Read by CTest behind the discovery, which takes no property that is a list.
  set(properties ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
  file(WRITE ${properties} "if(${name}_TESTS)
  set_tests_properties(\${${name}_TESTS} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST} LABELS [==[${ARG_LABELS}]==] ENVIRONMENT [==[${ARG_ENVIRONMENT}]==])
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${properties})
endfunction()
