// A load target: any server with OpenAI's streaming completions API.
#pragma once

#include <string>

#include "palimpsest/load/load_run.h"

namespace palimpsest {

struct HttpTargetOptions {
  std::string base_url;  // "http://127.0.0.1:8080", with or without "/v1"
  std::string api_key;   // empty: none
  std::string model;     // empty: the first in the server's list
  std::string cache;     // the `cache` field, our extension; empty: not sent
  double timeout = 600;  // seconds without a token
};

class HttpTarget final : public LoadTarget {
 public:
  explicit HttpTarget(const HttpTargetOptions& options);  // requests the model's name; throws Error
  ~HttpTarget() override;

  void send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) override;
  LoadState state() override;  // from /metrics, if it has our names or vLLM's
  void cancel() override;
  const std::string& model() const { return options_.model; }

 private:
  struct Impl;
  HttpTargetOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
