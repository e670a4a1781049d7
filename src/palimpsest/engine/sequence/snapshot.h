// A sequence on disk: cache (every slot, position, score), sampler, text. A loaded sequence continues bitwise equal to
// one that was never saved.
//
//   magic, version | model, method, cache | tokens, sampler | slot tables, pages | checksum of all bytes before
//
// Saving is atomic: write a temporary file, sync, rename. Keys and values are stored in the kernels' layout, also those
// of other devices, so that a sequence can go on elsewhere: there its results have the device's rounding. A snapshot is
// valid for one model file, one method, one kind of cache, and one byte order.
//
// The method is text, every key with its value. An unknown key is an error: the writer was newer. A missing key did not
// exist yet and has the value of Method{}: so a new key's default must be the behaviour before it. The preset's name
// does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/regular_file.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct SnapshotText {
  std::vector<TokenId> tokens;  // the whole text, for the user; the cache may hold fewer
  TokenId unread = -1;          // the last token, if the model has not read it; -1: it has
};

// These throw Error. `sampler` may be nullptr.
void save_snapshot(const std::string& path, const Session& session, const Sampler* sampler, const SnapshotText& text);
// `session`: of the same model and options. `sampler`: a new one of the same options; it gets the snapshot's seed.
// After an Error the session is empty.
SnapshotText load_snapshot(const std::string& path, Session& session, Sampler* sampler);

// A snapshot without its checksum.
void serialize_snapshot(ByteWriter& out, const Model& model, const Sequence& sequence, const Sampler* sampler,
                        const SnapshotText& text);
// Writes the bytes of `serialize` and their checksum. Returns false and writes no file if it would exceed `max_bytes`.
// `name`: used in errors; empty: the path.
bool write_snapshot(const std::string& path, const std::function<void(ByteWriter&)>& serialize,
                    std::size_t max_bytes = SIZE_MAX, const std::string& name = {});

// A file of this model, checked when it is opened, and again while the sequence is loaded: it stays open, its bytes are
// not kept in memory. It may be replaced or removed meanwhile; if it is truncated or changed, load() throws Error.
class Snapshot {
 public:
  // `name`: used in errors; empty: the path. Throws Error.
  Snapshot(const std::string& path, const Model& model, const std::string& name = {});

  const Method& method() const { return method_; }
  const SnapshotText& text() const { return text_; }
  std::size_t bytes() const { return file_->size(); }  // at least the bytes of its pages

  void check(const MethodPlan& plan) const;  // throws Error if the method or the kind of cache differs
  void resume(Sampler& sampler) const;       // throws Error if it was saved without a sampler
  void load(Sequence& sequence) const;       // after check(); throws Error, the sequence is empty then
  // To load it in parts: the input of Sequence::load_tables and load_pages; call require_checksum() after
  // them.
  ByteReader sequence_bytes() const { return rest_; }

 private:
  std::shared_ptr<const RegularFile> file_;
  std::string name_;
  Method method_;
  SnapshotText text_;
  bool has_sampler_ = false;
  std::uint32_t seed_ = 0;
  Sampler::State sampler_;
  ByteReader rest_;  // the sequence
};

}  // namespace palimpsest
