include(GNUInstallDirs)

# What every target of the project is compiled with.
add_library(stowage_options INTERFACE)
target_compile_features(stowage_options INTERFACE cxx_std_20)
target_compile_options(stowage_options INTERFACE
  -Wall -Wextra -Wconversion $<$<BOOL:${STOWAGE_WARNINGS_AS_ERRORS}>:-Werror>)
# g++ 12 takes "text" + std::string for overlapping copies (GCC bug 105651).
target_compile_options(stowage_options INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
if(STOWAGE_SANITIZER)
  # g++ 12 warns falsely of std::optional, and of replaced operators new, where a sanitizer or -O1 keeps
  # it from inlining.
  target_compile_options(stowage_options INTERFACE -Wno-maybe-uninitialized -Wno-mismatched-new-delete)
endif()
if(STOWAGE_SANITIZER STREQUAL "address")
  target_compile_options(stowage_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(stowage_options INTERFACE -fsanitize=address,undefined)
elseif(STOWAGE_SANITIZER STREQUAL "thread")
  target_compile_options(stowage_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(stowage_options INTERFACE -fsanitize=thread)
endif()

# stowage_library(name SOURCES … [LINK …] [PRIVATE …]): a folder's static library. LINK names the
# folders (and packages) that its headers or sources use.
function(stowage_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  string(REGEX REPLACE "^stowage_" "" short_name ${name})
  add_library(stowage::${short_name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:stowage_options> ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${short_name})
  set_property(GLOBAL APPEND PROPERTY STOWAGE_LIBRARIES ${name})
endfunction()

# stowage_program(name SOURCES … LINK …): a program for users; it is installed.
function(stowage_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE stowage_options ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY STOWAGE_PROGRAMS ${name})
endfunction()

# stowage_test(name SOURCES … LINK … [LABELS …] [TIMEOUT seconds]): one GoogleTest program, each test
# found by CTest. Those labelled "concurrent" are what the thread sanitizer looks at; the target
# concurrent_tests builds them alone.
add_custom_target(concurrent_tests)
function(stowage_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE stowage_options ${ARG_LINK} GTest::gmock GTest::gtest_main)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  if("concurrent" IN_LIST ARG_LABELS)
    add_dependencies(concurrent_tests ${name})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
