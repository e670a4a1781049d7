# PALIMPSEST_SANITIZE: instruments this project. Dependencies are not instrumented; tests/tsan.supp describes the
# consequences for threads.
if(PALIMPSEST_SANITIZE)
  add_compile_options(-fsanitize=${PALIMPSEST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PALIMPSEST_SANITIZE})
endif()
