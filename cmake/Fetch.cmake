# Downloads and builds the pinned upstream releases of missing dependencies (PALIMPSEST_FETCH=ON). The versions are those
# of the forky root, so that every route runs the same code.
function(palimpsest_fetch package url tag)
  if(package IN_LIST PALIMPSEST_MISSING)
    message(STATUS "Fetching ${package} ${tag}")
    FetchContent_Declare(${package} GIT_REPOSITORY ${url} GIT_TAG ${tag} GIT_SHALLOW ON GIT_PROGRESS ON)
    FetchContent_MakeAvailable(${package})
  endif()
endfunction()

# Options of dependencies are set as cache entries; some releases would override plain variables.
macro(palimpsest_theirs option value)
  set(${option} ${value} CACHE INTERNAL "set by palimpsest")
endmacro()

set(FETCHCONTENT_QUIET OFF)
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # BUILD_SHARED_LIBS
set(_palimpsest_shared ${BUILD_SHARED_LIBS})

# ggml and libllama come from one release. CPU backends are plug-ins per instruction set, chosen at run time,
# as in Debian: a build for the local CPU can be much slower (GGML_NATIVE and AVX512-FP16).
if("ggml" IN_LIST PALIMPSEST_MISSING OR "llama" IN_LIST PALIMPSEST_MISSING)
  list(APPEND PALIMPSEST_MISSING llama)
  set(BUILD_SHARED_LIBS ON)
  palimpsest_theirs(LLAMA_BUILD_COMMON OFF)
  palimpsest_theirs(LLAMA_BUILD_TOOLS OFF)
  palimpsest_theirs(LLAMA_BUILD_EXAMPLES OFF)
  palimpsest_theirs(LLAMA_BUILD_TESTS OFF)
  palimpsest_theirs(LLAMA_BUILD_SERVER OFF)
  palimpsest_theirs(GGML_NATIVE OFF)
  palimpsest_theirs(GGML_BACKEND_DL ON)
  if(NOT APPLE)
    palimpsest_theirs(GGML_CPU_ALL_VARIANTS ON)
  endif()
  palimpsest_theirs(GGML_BACKEND_DIR ${PROJECT_BINARY_DIR}/bin)
  palimpsest_fetch(llama https://github.com/ggml-org/llama.cpp.git v0.7.0)
endif()

set(BUILD_SHARED_LIBS OFF)
palimpsest_theirs(HWY_ENABLE_TESTS OFF)
palimpsest_theirs(HWY_ENABLE_EXAMPLES OFF)
palimpsest_theirs(HWY_ENABLE_CONTRIB OFF)
palimpsest_fetch(hwy https://github.com/google/highway.git 1.3.0)
if(TARGET hwy AND NOT TARGET hwy::hwy)
  add_library(hwy::hwy ALIAS hwy)
endif()
palimpsest_fetch(fmt https://github.com/fmtlib/fmt.git 11.1.4)
palimpsest_theirs(SPDLOG_FMT_EXTERNAL ON)
palimpsest_fetch(spdlog https://github.com/gabime/spdlog.git v1.15.3)
palimpsest_theirs(JSON_BuildTests OFF)
palimpsest_fetch(nlohmann_json https://github.com/nlohmann/json.git v3.12.0)
palimpsest_theirs(HTTPLIB_INSTALL OFF)
palimpsest_fetch(httplib https://github.com/yhirose/cpp-httplib.git v0.41.0)
palimpsest_theirs(CLI11_BUILD_TESTS OFF)
palimpsest_fetch(CLI11 https://github.com/CLIUtils/CLI11.git v2.6.1)
palimpsest_theirs(INSTALL_GTEST OFF)
palimpsest_fetch(GTest https://github.com/google/googletest.git v1.17.0)
set(BUILD_SHARED_LIBS ${_palimpsest_shared})
set(PALIMPSEST_INSTALL OFF)  # an installed library needs installed dependencies
