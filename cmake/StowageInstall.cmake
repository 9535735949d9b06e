# Headers, libraries, programs, and what find_package(stowage) needs. A user links stowage::stowage.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY STOWAGE_LIBRARIES)
get_property(programs GLOBAL PROPERTY STOWAGE_PROGRAMS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stowage)

add_library(stowage_umbrella INTERFACE)
add_library(stowage::stowage ALIAS stowage_umbrella)
set_target_properties(stowage_umbrella PROPERTIES EXPORT_NAME stowage)
target_link_libraries(stowage_umbrella INTERFACE ${libraries})

install(TARGETS stowage_umbrella ${libraries} EXPORT stowageTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/stowage
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(programs)
  set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ${programs} RUNTIME_DEPENDENCY_SET stowage_dependencies RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
get_property(modules GLOBAL PROPERTY STOWAGE_MODULES)
if(modules)
  install(TARGETS ${modules} RUNTIME_DEPENDENCY_SET stowage_dependencies LIBRARY DESTINATION lib/stowage)
endif()

install(EXPORT stowageTargets NAMESPACE stowage:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/stowageConfig.cmake.in
  ${PROJECT_BINARY_DIR}/stowageConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stowageConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/stowageConfig.cmake
  ${PROJECT_BINARY_DIR}/stowageConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

include(StowageRelocatable)
