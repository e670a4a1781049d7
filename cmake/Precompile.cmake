# palimpsest_precompile(TARGET HEADER...): headers of other projects that most of the target's sources include are
# parsed once. Sources still include what they use; PALIMPSEST_PRECOMPILE=OFF checks this.
# Another target with the same flags can share them: palimpsest_precompile(TARGET REUSE_FROM OTHER).
option(PALIMPSEST_PRECOMPILE "parse the heavy headers of other projects once" ON)
function(palimpsest_precompile target)
  if(NOT PALIMPSEST_PRECOMPILE)
    return()
  endif()
  if(ARGV1 STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  # ccache needs it of g++ (and CCACHE_SLOPPINESS, which tools/build sets).
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()
