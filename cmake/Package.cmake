# cpack -G DEB: two Debian packages. palimpsest: the command, models, manual pages, completions, the systemd unit and its
# configuration. libpalimpsest-dev: the library, its headers, find_package. cpack -G TGZ: both in an archive.
# Manual pages and completions come from docs/cli.md (packages/reference.py).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(_pages ${PROJECT_BINARY_DIR}/package)
execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/packages/man.py ${_pages}/man COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/packages/completions.py ${_pages}/completions
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND gzip -9nf -k ${PROJECT_SOURCE_DIR}/CHANGELOG.md -c OUTPUT_FILE ${_pages}/changelog.gz
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB _man ${_pages}/man/*.1)
foreach(page IN LISTS _man)
  execute_process(COMMAND gzip -9nf ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
set(_command COMPONENT command)
install(DIRECTORY ${_pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 ${_command} FILES_MATCHING PATTERN "*.1.gz")
install(FILES ${_pages}/completions/palimpsest.bash RENAME palimpsest
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions ${_command})
install(FILES ${_pages}/completions/_palimpsest DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions ${_command})
install(FILES ${_pages}/completions/palimpsest.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d ${_command})
install(FILES packages/debian/palimpsest.service DESTINATION lib/systemd/system ${_command})
install(FILES packages/debian/serve.conf DESTINATION /etc/palimpsest ${_command})
set(_components command library)
set(_packages palimpsest libpalimpsest-dev)
foreach(component package IN ZIP_LISTS _components _packages)
  install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  install(FILES ${_pages}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME palimpsest)
set(CPACK_PACKAGE_VENDOR "Palimpsest")
set(CPACK_PACKAGE_CONTACT "Palimpsest developers <palimpsest@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL command library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME palimpsest)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "ca-certificates")  # palimpsest pull
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "language models in constant memory: command, server, default model
 Runs GGUF models with a KV cache of fixed size: an eviction policy chooses
 which tokens are kept. Serves OpenAI's HTTP API.")
set(CPACK_DEBIAN_COMMAND_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packages/debian/postinst
    ${PROJECT_SOURCE_DIR}/packages/debian/prerm ${PROJECT_SOURCE_DIR}/packages/debian/postrm
    ${PROJECT_SOURCE_DIR}/packages/debian/conffiles)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libpalimpsest-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libggml-dev, libllama-dev, libhwy-dev, libfmt-dev, libspdlog-dev, nlohmann-json3-dev, libcpp-httplib-dev, zlib1g-dev")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "language models in constant memory: development files
 A static library, its headers, and find_package(palimpsest) for CMake.")
include(CPack)
