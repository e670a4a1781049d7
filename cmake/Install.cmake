# cmake --install: the libraries, their headers under include/palimpsest, the command, and find_package(palimpsest).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_palimpsest_cmake ${CMAKE_INSTALL_LIBDIR}/cmake/palimpsest)

install(TARGETS palimpsest palimpsest_engine palimpsest_hub palimpsest_server palimpsest_eval EXPORT palimpsestTargets
        COMPONENT library INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY src/palimpsest DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library
        FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE)
install(FILES $<TARGET_FILE:llama-common::llama-common> DESTINATION ${CMAKE_INSTALL_LIBDIR}/palimpsest
        COMPONENT library)
if(TARGET palimpsest_app)
  install(TARGETS palimpsest_app COMPONENT command)
endif()
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/palimpsest/models COMPONENT command
        FILES_MATCHING PATTERN "*.gguf" PATTERN "*.duo" PATTERN "*.scorer" PATTERN "*.temporal"
        PATTERN "*.profile" PATTERN "*.centres" PATTERN "*.kvzap")
install(EXPORT palimpsestTargets NAMESPACE palimpsest:: DESTINATION ${_palimpsest_cmake} COMPONENT library)
configure_package_config_file(cmake/palimpsestConfig.cmake.in ${PROJECT_BINARY_DIR}/palimpsestConfig.cmake
                              INSTALL_DESTINATION ${_palimpsest_cmake})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/palimpsestConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/palimpsestConfig.cmake ${PROJECT_BINARY_DIR}/palimpsestConfigVersion.cmake
              cmake/Findhttplib.cmake
        DESTINATION ${_palimpsest_cmake} COMPONENT library)
if(PALIMPSEST_PACKAGE)
  include(Package)
endif()
