# PALIMPSEST_SANITIZE: instruments everything of ours. The dependencies are not instrumented; tests/tsan.supp
# names what that means for threads.
if(PALIMPSEST_SANITIZE)
  add_compile_options(-fsanitize=${PALIMPSEST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PALIMPSEST_SANITIZE})
endif()
