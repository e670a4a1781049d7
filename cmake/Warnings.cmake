# palimpsest_warnings(TARGET): warning flags of every target. -Wconversion excludes signedness
# (clang adds it, g++ does not): index types of std containers and ggml differ, and casts would hide other warnings.
function(palimpsest_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion
                                           $<$<BOOL:${PALIMPSEST_WERROR}>:-Werror>)
endfunction()
