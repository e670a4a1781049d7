// Hugging Face's API, or a mirror of it ($HF_ENDPOINT): the files of a model, their sizes and sums.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/hub/download.h"
#include "palimpsest/hub/hub_files.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {

struct HubModel {
  HubName name;  // with the tag that was chosen
  std::string commit, licence;
  std::vector<HubFile> files;
};

// GET /api/models/USER/REPO/revision/main?blobs=true. Throws Error: no such repository, or it needs a token; no such
// quantisation (names those that there are).
HubModel find_hub_model(const Http& http, const HubName& name);

// One of its files: GET /USER/REPO/resolve/COMMIT/PATH.
RemoteFile hub_file(const HubModel& model, const HubFile& file);

std::string hub_endpoint();  // "https://huggingface.co"

}  // namespace palimpsest
