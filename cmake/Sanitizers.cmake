# PALIMPSEST_SANITIZE: instruments this project. Dependencies are not instrumented; tests/tsan.supp describes the
# consequences for threads.
if(PALIMPSEST_SANITIZE)
  add_compile_options(-fsanitize=${PALIMPSEST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # With sanitizers GCC warns of std::regex, and of free() in tests that replace operator new; both are false.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-mismatched-new-delete>)
  add_link_options(-fsanitize=${PALIMPSEST_SANITIZE})
endif()
