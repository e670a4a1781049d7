// A sequence on disk: its cache with every slot, position and score, its sampler, its text; and back, so that it goes
// on as if nothing had been between, to the last bit.
//
//   magic, version | model, method, cache | tokens, sampler | slot tables, pages | checksum of all before it
//
// Written to a file beside it, synced, then renamed: whoever reads finds the old snapshot or the new one, whole. Keys
// and values lie as the kernels use them: a snapshot belongs to one model file, one method and one kind of cache, and
// to machines of this byte order.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/engine/session.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct SnapshotText {
  std::vector<TokenId> tokens;  // all that was read and written, for the user; the cache may hold fewer
  TokenId unread = -1;          // the last of them, if the model has not read it yet; -1: it has
};

// Both throw Error. `sampler` may be nullptr. The CPU's own path only.
void save_snapshot(const std::string& path, const Session& session, const Sampler* sampler, const SnapshotText& text);
// `session` is one of the same model and options, `sampler` a fresh one of the same options (the seed may differ: the
// snapshot's is taken). After an Error the session is empty.
SnapshotText load_snapshot(const std::string& path, Session& session, Sampler* sampler);

}  // namespace palimpsest
