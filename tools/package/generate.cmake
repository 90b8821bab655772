# What an installation has that is made by the program itself: the JSON Schema, completions of
# shells, man pages. Run by install(CODE) in package.cmake, which sets PROGRAM, SOURCE and OUT.
file(MAKE_DIRECTORY ${OUT}/man)
function(ada_output file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${OUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
ada_output(ada-train.schema.json schema)
ada_output(ada-train.bash completion bash)
ada_output(_ada-train completion zsh)
ada_output(ada-train.fish completion fish)
execute_process(COMMAND python3 ${SOURCE}/tools/package/man_pages.py ${PROGRAM} ${OUT}/man
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB pages ${OUT}/man/*.1)
foreach(page IN LISTS pages)
  execute_process(COMMAND gzip -9nf ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND gzip -9nc ${SOURCE}/tools/package/changelog OUTPUT_FILE ${OUT}/changelog.gz
                COMMAND_ERROR_IS_FATAL ANY)
