# palimpsest_warnings(TARGET): what every target of ours compiles with. Signedness is left out of -Wconversion
# (clang adds it, g++ does not): indices of std containers and of ggml differ, and casts would hide the rest.
function(palimpsest_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion
                                           $<$<BOOL:${PALIMPSEST_WERROR}>:-Werror>)
endfunction()
