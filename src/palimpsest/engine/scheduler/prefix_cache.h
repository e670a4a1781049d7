// Prefix caching: caches of prompt prefixes, reused by prompts with the same prefix.
//
//   prompt   | chunk | chunk | chunk | rest |          a prefix ends at the end of a chunk that is not the last, and
//                                                      before the queries that a policy's window holds at the end
//            '--- kept ---'
//                    '------- kept ------'             its pages are shared (copy-on-write) with the sequence that
//                                                      read it, and with shorter prefixes
//
// Chunks have a fixed size, so the cache after some chunks depends only on the method and the tokens, evictions
// included: a sequence that continues from a prefix is bitwise equal to one that read the prompt itself. While nothing
// was evicted, methods may differ: see compatible_with(). Rationale: docs/decisions/0010-shared-prefixes.md.
//
// Histories are caches after a whole prompt, and after its answer. What they hold depends on how the text was read:
// answers token by token, each prompt in chunks from where it began, with all evictions in between. A prompt that
// begins with a history's text reads only the rest, and continues bitwise equal to a sequence that read that text in
// this way and was never resent; a sequence that reads the whole text as one prompt may answer otherwise. Rationale:
// docs/decisions/0026-resent-histories.md.
//
//   prompt 1 | answer 1 | prompt 2 | answer 2 |        prompt 3 begins with all of this, except where the client
//   changed
//            h          h          h          h        it: it continues from the last h before the change
//
// Each page is counted once, even if several kept caches share it. On devices each kept cache has a storage of its own,
// and so has the sequence that continues from it: copies. Not thread safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "palimpsest/engine/scheduler/text_diff.h"
#include "palimpsest/engine/scheduler/text_match.h"
#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {

// The choices that a kept cache depends on, and who keeps or looks for it.
struct PrefixKey {
  explicit PrefixKey(const MethodPlan& plan, int scope = 0, std::string session = {}, std::chrono::seconds pin = {});

  int scope;  // caches are used inside their scope only
  Method method;
  int chunk;
  Rotation rotation;                // how keys are stored, and rounded on read
  std::string statistics;           // what a policy collects of tokens in prefill; empty: nothing
  std::size_t window;               // the prompt's last tokens, whose queries the policy needs at its end: at least 1
  long long nothing_evicted_until;  // MethodPlan::nothing_evicted_until
  CacheOptions cache;
  std::string session;       // Request::session; empty: none
  std::chrono::seconds pin;  // Request::pin
};
// Whether sequences of `from` and of `to` have equal caches after `tokens` tokens. `whole`: the cache of `from` holds
// all tokens that `to` needs, in the same slots (Cache::compatible_with).
bool compatible_with(const PrefixKey& from, std::size_t tokens, bool whole, const PrefixKey& to);

struct History {
  Cache& cache;
  std::span<const std::byte> state;  // Sequence::state
  bool in_prompt;                    // it ends inside a prompt
  std::span<const TokenId> tokens;   // read
  Continuation next;                 // of the prompt that was looked up
  std::span<const float> logits;     // after the last token, if next.rest is empty
  std::chrono::seconds pin;          // of what continues it
};

// A history that is to be edited. The prompt's last token is in no run.
struct EditedHistory {
  Cache& cache;
  std::span<const std::byte> state;
  bool in_prompt;
  std::span<const TokenId> tokens;
  std::vector<CommonRun> runs;  // of its text and the prompt
  std::size_t unread;           // prompt tokens in no run
  std::chrono::seconds pin;     // of what continues it
};

class PrefixCache {
 public:
  // The longest usable prefix of `prompt`, without its last `key.window` tokens and longer than `read` tokens; nullptr:
  // none. Marks it and its own prefixes as most recently used.
  Cache* find(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read);
  // Keeps the cache of `sequence`, which holds the first `read` tokens of `prompt`: the end of a chunk. Evicts other
  // prefixes until all have at most `max` bytes; does nothing if this one alone has more, or if fewer than `key.window`
  // tokens follow. Throws Error or std::bad_alloc without memory, and has no effect then.
  void keep(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read, Sequence& sequence,
            std::size_t max);
  // The first tokens of `prompt` that find(), or find_history() if there is a `history` key, would find.
  std::size_t longest(const PrefixKey& key, const PrefixKey* history, std::span<const TokenId> prompt,
                      const Vocabulary* vocabulary) const;
  // The history that leaves the fewest tokens of `prompt` to read, none only if it has logits; valid until the next
  // call of another function. It is the first to be evicted from now on: the sequence that continues from it will be
  // kept instead.
  std::optional<History> find_history(const PrefixKey& key, std::span<const TokenId> prompt,
                                      const Vocabulary* vocabulary);
  // The history that leaves the fewest tokens of `prompt` to read if its text is edited, reusing runs of at least `min`
  // tokens; nullopt: none leaves `min` fewer than prefixes and histories that are not edited. Valid likewise. Looks at
  // the last kMaxEdited that were used.
  std::optional<EditedHistory> find_edited(const PrefixKey& key, std::span<const TokenId> prompt,
                                           const Vocabulary* vocabulary, std::size_t min);
  static constexpr std::size_t kMaxEdited = 16;
  // Keeps the cache of `sequence`, which has read `tokens`, as keep() does, and `logits` after the last of them, for
  // prompts that are the same: none at the end of an answer. Histories that it continues are evicted before all other
  // caches; of a prompt and its answer, the end that chats are seen not to continue from.
  void keep_history(const PrefixKey& key, std::span<const TokenId> tokens, Sequence& sequence, bool in_prompt,
                    std::span<const float> logits, std::size_t max);
  // Evicts one cache: first histories that were continued and prefixes that one prompt alone begins with, so that a
  // long prompt does not evict the chats; then the others; those whose pin has not ended last. Of each the least
  // recently used, of equals the longest. false: there was none.
  bool evict_one() noexcept;
  // Evicts the caches that this session kept and no other has used.
  void close_session(const std::string& session, int scope) noexcept;

  // A kept cache that is to be written to disk: the next to be evicted of those that were not used for this time, and
  // that no longer history or prefix continues. Those also that have another use: prefixes that several prompts have;
  // the last prompt's end of a chat, unless chats are seen to continue from the ends of answers. It stays valid until
  // it is evicted; `on_evict` is called before. nullopt: none.
  struct Unwritten {
    const PrefixKey& key;
    bool history, at_prompt_end, in_prompt;
    std::span<const TokenId> tokens;
    const Cache& cache;
    std::span<const std::byte> state;
    std::chrono::seconds pin;  // that remains
  };
  std::optional<Unwritten> begin_to_write(std::chrono::milliseconds unused_for, std::function<void()> on_evict);
  void count_use(bool at_prompt_end) noexcept;          // of a history
  void end_to_write() noexcept { writing_ = nullptr; }  // it is not returned again

  // All pages, each counted once, or the copies of storages, and the tokens, tables and statistics of all kept caches.
  std::size_t bytes() const { return bytes_of_pages() + overhead_bytes_; }
  std::size_t bytes_of_pages() const { return bytes_of_pages_; }
  std::size_t overhead_bytes() const { return overhead_bytes_; }
  std::size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    PrefixKey key;
    std::vector<TokenId> tokens;
    std::unique_ptr<Cache> cache;
    bool history = false;
    bool in_prompt = false, continued = false;  // of histories; by another prompt
    bool answered = false;                      // the end of a prompt whose answer's end is kept, too
    bool shared = false;                        // used by another session than that of `key`
    bool used_again = false;                    // of prefixes: another prompt continued from it
    bool begins_others = false;                 // of prefixes: another prompt continued from it, or from a longer one
    bool writable = true;                       // `state` is that of the cache
    bool written = false;                       // to disk, or it was tried
    std::vector<std::byte> state = {};
    std::vector<float> logits = {};  // of histories that end with a prompt
    std::vector<PageId> pages = {};
    std::size_t overhead_bytes = 0;  // bytes
    std::uint64_t used = 0;
    std::chrono::steady_clock::time_point used_at = {}, pinned_until = {};
  };
  static bool may_serve(const Kept& kept, const PrefixKey& to);  // prefixes
  static bool same_history(const Kept& kept, const PrefixKey& key);
  static bool may_edit(const Kept& kept, const PrefixKey& key);
  void add(Kept kept);
  Kept* longest_prefix(const PrefixKey& key, std::span<const TokenId> prompt, std::size_t read) const;
  std::pair<Kept*, Continuation> longest_history(const PrefixKey& key, std::span<const TokenId> prompt,
                                                 const Vocabulary* vocabulary) const;
  static bool begins(const Kept& kept, std::span<const TokenId> prompt);
  auto rank(const Kept& kept, std::chrono::steady_clock::time_point now) const;
  bool is_followed(const Kept& kept) const;
  bool begins_no_prompt(const Kept& kept) const;
  bool is_worth_writing(const Kept& kept) const;
  void touch(const PrefixKey& key, std::span<const TokenId> prompt, bool found);
  std::chrono::seconds use(Kept& kept, const PrefixKey& by);
  // A fork of a session's history by another leaves it as it was.
  static bool of_another(const Kept& kept, const PrefixKey& by) {
    return !kept.key.session.empty() && !by.session.empty() && kept.key.session != by.session;
  }
  using KeptCaches = std::vector<std::unique_ptr<Kept>>;
  KeptCaches::iterator evict(KeptCaches::iterator at) noexcept;
  void count_pages(Kept& kept);
  void evict_pages(const Kept& kept, std::size_t count) noexcept;  // the first `count` of its pages

  KeptCaches kept_;
  std::unordered_map<PageId, int> users_;  // number of kept caches that share a page
  std::size_t bytes_of_pages_ = 0, overhead_bytes_ = 0;
  std::uint64_t clock_ = 0;
  // Of the last uses, prompts that continued histories at the end of a prompt, and of an answer. The first are many
  // where clients or chat templates leave out a part of answers: reasoning, white space.
  long long prompt_end_uses_ = 0, answer_end_uses_ = 0;
  const Kept* writing_ = nullptr;  // begin_to_write()
  std::function<void()> on_evict_;
};

}  // namespace palimpsest
