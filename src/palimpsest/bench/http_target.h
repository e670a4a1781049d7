// A server that speaks OpenAI's completions over HTTP, streaming: ours or another.
#pragma once

#include <string>

#include "palimpsest/bench/load_run.h"

namespace palimpsest {

struct HttpTargetOptions {
  std::string base_url;  // "http://127.0.0.1:8080", with or without "/v1"
  std::string api_key;   // empty: none
  std::string model;     // empty: the first that the server names
  std::string cache;     // the `cache` field, our extension; empty: left out
  double timeout = 600;  // seconds without a token
};

class HttpTarget final : public LoadTarget {
 public:
  explicit HttpTarget(const HttpTargetOptions& options);  // asks for the model's name; throws Error
  ~HttpTarget() override;

  void send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) override;
  LoadState state() override;  // from /metrics, where the server has our names or vLLM's
  void cancel() override;
  const std::string& model() const { return options_.model; }

 private:
  struct Impl;
  HttpTargetOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
