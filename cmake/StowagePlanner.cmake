# STOWAGE_PLANNER_ONLY: libstowage_plan.so alone, with nothing but g++, CMake, fmt and nlohmann-json, for the Python package.
# fmt is taken from its headers, so that the library needs no other than those of the system. Where this source has a build
# folder already, its library is brought up to date and taken instead.
set(STOWAGE_BUILT_TREE ${PROJECT_SOURCE_DIR}/build/release CACHE PATH "a build folder of this source whose library is taken")
if(EXISTS ${STOWAGE_BUILT_TREE}/CMakeCache.txt)
  message(STATUS "planner: from ${STOWAGE_BUILT_TREE}")
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${STOWAGE_BUILT_TREE} --target stowage_c_plan RESULT_VARIABLE failed)
  if(NOT failed)
    install(FILES ${STOWAGE_BUILT_TREE}/lib/libstowage_plan.so DESTINATION stowage COMPONENT python)
    return()
  endif()
  message(STATUS "planner: that folder does not build; building anew")
endif()

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
set(STOWAGE_PARALLEL threads)
set(STOWAGE_BUILD_TESTS OFF)
set(CMAKE_UNITY_BUILD ON)
include(StowageTargets)
set(STOWAGE_FMT fmt::fmt-header-only)

foreach(folder src/base src/graph src/placement src/machine offload/recompute offload/plan offload/parallel tools/console tools/report tools/answer
    tools/c_plan)
  add_subdirectory(${folder})
endforeach()
