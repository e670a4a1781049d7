// The cache of Hugging Face's own programs, read only: $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub.
//
//   models--USER--REPO/refs/main                  a commit
//                      snapshots/COMMIT/FILE      a link to
//                      blobs/SHA256               the file
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "palimpsest/hub/names.h"

namespace palimpsest {

// The file of this content, if the cache has it in full.
std::optional<std::filesystem::path> blob_in_hf_cache(const HubName& name, const std::string& sha256,
                                                      std::uint64_t size);

// The model's first file, where the cache has all of it for the branch main.
std::optional<std::filesystem::path> model_in_hf_cache(const HubName& name);

// $HF_TOKEN, else the file $HF_TOKEN_PATH or $HF_HOME/token (`hf auth login` writes it); empty: none.
std::string hf_token();

}  // namespace palimpsest
