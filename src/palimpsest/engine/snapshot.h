// A sequence on disk: its cache with every slot, position and score, its sampler, its text; and back, so that it goes
// on as if nothing had been between, to the last bit.
//
//   magic, version | model, method, cache | tokens, sampler | slot tables, pages | checksum of all before it
//
// Written to a file beside it, synced, then renamed: whoever reads finds the old snapshot or the new one, whole. Keys
// and values lie as the kernels use them: a snapshot belongs to one model file, one method and one kind of cache, and
// to machines of this byte order.
//
// The method is text, every key with its value. A key that the reader does not know is an error: the writer was newer.
// A key that is missing had not been invented: it has the value of a Method{}, so a new key's default must be what was
// done before it. The same choices under another preset's name are the same method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/mapped_file.h"
#include "palimpsest/engine/session.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct SnapshotText {
  std::vector<TokenId> tokens;  // all that was read and written, for the user; the cache may hold fewer
  TokenId unread = -1;          // the last of them, if the model has not read it yet; -1: it has
};

// These throw Error. `sampler` may be nullptr. The CPU's own path only.
void save_snapshot(const std::string& path, const Session& session, const Sampler* sampler, const SnapshotText& text);
// `session` is one of the same model and options, `sampler` a fresh one of the same options (the seed may differ: the
// snapshot's is taken). After an Error the session is empty.
SnapshotText load_snapshot(const std::string& path, Session& session, Sampler* sampler);

// A snapshot's bytes but the checksum of them all, which ends the file.
void serialize_snapshot(ByteWriter& out, const Model& model, const Sequence& sequence, const Sampler* sampler,
                        const SnapshotText& text);
// Writes a file of what `serialize` writes and its checksum. false, and no file: it would have more than `max_bytes`.
bool write_snapshot(const std::string& path, const std::function<void(ByteWriter&)>& serialize,
                    std::size_t max_bytes = SIZE_MAX);

class Snapshot {  // a file, found to be whole and of this model; it may be replaced or removed meanwhile
 public:
  // `name`: what it is called in errors; empty: its path. Throws Error.
  Snapshot(const std::string& path, const Model& model, const std::string& name = {});

  const Method& method() const { return method_; }
  const SnapshotText& text() const { return text_; }
  std::size_t bytes() const { return file_.bytes().size(); }  // no fewer than its pages have

  void check(const MethodPlan& plan) const;  // throws Error for one of another method or kind of cache
  void resume(Sampler& inserted) const;      // throws Error if there was none
  void load(Sequence& sequence) const;       // of one that was checked; throws Error, with the sequence empty then
  // For those who load it in parts: what Sequence::load_tables reads, and after load_pages has read the rest.
  ByteReader sequence_bytes() const { return rest_; }
  static void require_end(ByteReader& rest);

 private:
  MappedFile file_;
  std::string name_;
  Method method_;
  SnapshotText text_;
  bool has_sampler_ = false;
  std::uint32_t seed_ = 0;
  Sampler::State sampler_;
  ByteReader rest_;  // the sequence
};

}  // namespace palimpsest
