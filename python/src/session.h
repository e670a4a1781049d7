// A session for Python: one thread at a time, arrays of a step.
#pragma once

#include <mutex>
#include <optional>

#include "binding.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest::python {

class PySession {
 public:
  // `record_memory`: as Session::record_memory().
  PySession(const PyModel& model, const SessionOptions& options, bool record_memory);

  // These run without the GIL; other threads wait. All throw Error.
  std::vector<float> prefill(const std::vector<TokenId>& tokens);
  std::vector<float> decode(TokenId token);
  std::vector<float> read(const std::vector<TokenId>& tokens);  // [tokens][vocabulary]
  void rewind(Position position);
  // Session::edit of the text so far. Returns the logits of the last token read; empty: nothing was read.
  std::vector<float> edit(Position first, Position last, const std::vector<TokenId>& tokens, const std::string& mode);
  void clear();
  void save(const std::string& path, const Sampler* sampler, TokenId unread);
  TokenId restore(const std::string& path, Sampler* sampler);  // returns SnapshotText::unread
  std::unique_ptr<PySession> fork();

  // Arrays of the cache as it is after the last step: a head's tokens, oldest first.
  std::vector<Position> positions(int layer, int head);
  enum class What { kKeys, kValues, kScores, kWeights };
  std::vector<float> rows(What what, int layer, int head, int& width);
  MemoryMap memory_map(const MemoryQuery& query);  // with the ids of all tokens; memory.cpp
  nb::dict statistics();

  // For others that run the session: a lock, and the session.
  std::unique_lock<std::mutex> lock();
  Session& session() { return session_; }
  const PyModel& model() const { return model_; }
  void read_by_other(const std::vector<TokenId>& tokens) { append(tokens); }
  void stepped() { ++step_; }
  long long step() const { return step_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }

 private:
  void check(const std::vector<TokenId>& tokens) const;
  void append(const std::vector<TokenId>& tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }
  int flat_head(int layer, int head) const;
  std::vector<int> slots_by_age(int flat) const;

  PyModel model_;
  Session session_;
  bool record_memory_;
  std::mutex mutex_;
  std::vector<TokenId> tokens_;      // the text so far, for snapshots
  std::atomic<long long> step_ = 0;  // increases with every change of the cache
};

}  // namespace palimpsest::python
