# Every dependency: the installed package, else (PALIMPSEST_FETCH=ON) the pinned upstream release, else an error.
include(FetchContent)
set(PALIMPSEST_MISSING "")

# palimpsest_dependency(PACKAGE [OPTIONAL]): find_package quietly, and note what is missing.
macro(palimpsest_dependency package)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND AND NOT "${ARGN}" STREQUAL "OPTIONAL")
    list(APPEND PALIMPSEST_MISSING ${package})
  endif()
endmacro()

find_package(Threads REQUIRED)
palimpsest_dependency(ggml)
palimpsest_dependency(llama)
palimpsest_dependency(llama-common)  # tools/setup/llama-common
palimpsest_dependency(hwy)
palimpsest_dependency(fmt)
palimpsest_dependency(spdlog)
palimpsest_dependency(nlohmann_json)
palimpsest_dependency(httplib)
palimpsest_dependency(ZLIB OPTIONAL)  # unpacks wheels (hub/zip_member)
if(PALIMPSEST_APPS)
  palimpsest_dependency(CLI11)
endif()
if(PALIMPSEST_TESTS)
  palimpsest_dependency(GTest)
  palimpsest_dependency(benchmark OPTIONAL)
endif()

if(PALIMPSEST_MISSING AND PALIMPSEST_FETCH)
  include(Fetch)
elseif(PALIMPSEST_MISSING)
  list(JOIN PALIMPSEST_MISSING ", " _missing)
  message(FATAL_ERROR
    "Not installed: ${_missing}.\n"
    "Use `make build` or `tools/env cmake ...`, which find or create an environment with them, or pass -DPALIMPSEST_FETCH=ON "
    "to download and build the upstream releases.")
endif()
