// Names of models: what a user types, and which names of others are safe to use for a file.
//
//   smollm2                          the catalogue's (hub/catalogue.h), or that of a model pulled by its address
//   hf:USER/REPO, hf:USER/REPO:TAG   a repository of Hugging Face; TAG: a quantisation (Q4_K_M), or a file's name
//   https://HOST/PATH.gguf           an address
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct HubName {
  std::string user, repo, tag;  // tag: empty: not given
  std::string repository() const { return user + "/" + repo; }
  std::string spelled() const;  // "hf:USER/REPO:TAG"
};

bool is_hub_name(std::string_view text);  // begins with "hf:"
bool is_address(std::string_view text);   // begins with "http://" or "https://"
// Reads "USER/REPO[:TAG]", with or without "hf:". Throws Error.
HubName parse_hub_name(std::string_view text);

// A name that may become a file in our folders: letters, digits and "._+-", neither hidden nor too long. Everything
// that a hub, an index or an address calls a file is checked with it.
bool is_safe_file_name(std::string_view name);

// "model-00001-of-00003.gguf"
struct SplitName {
  std::string stem;  // "model"
  int number = 0, count = 0;
  std::string part(int index) const;  // the name of another part, from 1 on
};
std::optional<SplitName> split_name(std::string_view file);

// The quantisation in a file's name, in upper case: "Q4_K_M" of "x-Q4_K_M.gguf" and "x.q4_k_m-00001-of-00002.gguf";
// empty: none.
std::string quant_in(std::string_view file);

}  // namespace palimpsest
