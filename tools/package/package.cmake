# Where files go: `cmake --install build`, and `cpack -G DEB` in the build folder, which writes one
# ada-train_VERSION_ARCHITECTURE.deb for the Debian that it runs on.
include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/ada-train)
set(generated ${CMAKE_BINARY_DIR}/package)

install(TARGETS ada-train RUNTIME)
# For the Python package, to which ADA_SCALING_LIBRARY names it; no other program links it.
install(TARGETS ada_c_api LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ada-train)
install(DIRECTORY configs DESTINATION ${share} FILES_MATCHING PATTERN *.yaml)
install(PROGRAMS data/scripts/fetch.py DESTINATION ${share}/scripts)
install(FILES data/scripts/catalog.py data/scripts/download.py data/scripts/trees.py
        DESTINATION ${share}/scripts)
# The Python tools that are commands of the program, laid out as in the source tree: each finds what
# it imports beside itself.
install(PROGRAMS tools/report.py tools/sweep.sh tools/from_torch.py tools/to_torch.py tools/to_onnx.py
        DESTINATION ${share}/tools)
install(FILES tools/help_format.py tools/whole_file.py DESTINATION ${share}/tools)
install(DIRECTORY tools/sweep tools/torch_network tools/trained_network DESTINATION ${share}/tools
        FILES_MATCHING PATTERN *.py PATTERN *.sh)
install(DIRECTORY tools/python/ada_train DESTINATION ${share}/tools/python FILES_MATCHING PATTERN *.py
        PATTERN *.js)
install(FILES README.md TYPE DOC)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/configs FILES_MATCHING PATTERN *.md
        PATTERN sweep EXCLUDE)
install(FILES src/telemetry/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME columns.md)
install(FILES tools/package/copyright TYPE DOC)

install(CODE "execute_process(COMMAND \${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:ada-train>
  -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${generated} -P ${CMAKE_SOURCE_DIR}/tools/package/generate.cmake
  COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${generated}/ada-train.schema.json DESTINATION ${share})
install(FILES ${generated}/ada-train.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME ada-train)
install(FILES ${generated}/_ada-train DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${generated}/ada-train.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY ${generated}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN *.gz)
install(FILES ${generated}/changelog.gz TYPE DOC)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ada-train)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "ada-train <maintainers@ada-train.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training in emulated low precision, layer by layer")
set(CPACK_PACKAGE_DESCRIPTION
"Trains neural networks described in YAML with emulated number formats (fp16,
bf16, fp8 and others) and loss-scaling policies (fixed, dynamic, adaptive per
layer), and writes what each layer lost and which scale it had as CSV files.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, dataset-fashion-mnist")
# Of report and sweep.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "python3-pandas, python3-matplotlib, python3-yaml, python3-plotly")
include(CPack)
