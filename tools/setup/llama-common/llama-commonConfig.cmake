# llama-common::llama-common; LLAMA_COMMON_TEMPLATES: folder of chat templates of known models.
include(CMakeFindDependencyMacro)
find_dependency(ggml)
find_dependency(llama)
get_filename_component(_llama_common ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
if(NOT TARGET llama-common::llama-common)
  add_library(llama-common::llama-common STATIC IMPORTED)
  set_target_properties(llama-common::llama-common PROPERTIES
    IMPORTED_LOCATION ${_llama_common}/lib/libllama-common.a
    INTERFACE_INCLUDE_DIRECTORIES ${_llama_common}/include
    INTERFACE_LINK_LIBRARIES "llama;ggml::ggml")
endif()
set(LLAMA_COMMON_TEMPLATES ${_llama_common}/share/llama-common/templates)
