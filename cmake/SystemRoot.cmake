# PALIMPSEST_ROOT: host path of the system root that the build runs in (docs/decisions/0001-forky-root.md). Programs must
# start from the host's shell, so they are linked with the root's dynamic linker and libraries, not the host's.
if(PALIMPSEST_ROOT)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(_palimpsest_linker lib64/ld-linux-x86-64.so.2)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(_palimpsest_linker lib/ld-linux-aarch64.so.1)
  else()
    message(FATAL_ERROR "PALIMPSEST_ROOT: no dynamic linker known for ${CMAKE_SYSTEM_PROCESSOR}")
  endif()
  # RPATH, not RUNPATH: it also applies to indirect dependencies and to ggml's plug-ins.
  add_link_options(-Wl,--dynamic-linker=${PALIMPSEST_ROOT}/${_palimpsest_linker} -Wl,--disable-new-dtags
                   -Wl,-rpath,${PALIMPSEST_ROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
endif()

# Path of ggml's plug-ins at run time; "$ORIGIN": beside ggml's library; empty: ggml is linked with its backends, or
# finds them itself.
set(PALIMPSEST_GGML_BACKEND_DIR "" CACHE STRING "folder of ggml's plug-ins at run time")
if(NOT PALIMPSEST_GGML_BACKEND_DIR AND GGML_BACKEND_DL AND GGML_BACKEND_DIR)
  set(PALIMPSEST_GGML_BACKEND_DIR ${PALIMPSEST_ROOT}${GGML_BACKEND_DIR})
endif()
