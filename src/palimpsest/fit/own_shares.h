// Shares of heads of a model that has no MODEL.profile: measured by itself, when a method would use them, from a short
// text, in about the time of a prompt of 1,000 tokens; kept for the next time in
//
//   $XDG_CACHE_HOME/palimpsest/profiles, else ~/.cache/palimpsest/profiles: FINGERPRINT.profile
//
// How good they are: docs/decisions/0059-own-shares.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// Tokens of the text: with the instruction one part of a repetition (eval/repetition.h).
inline constexpr int kOwnShareTokens = 480;

// Returning false ends the measurement.
using ShareProgress = std::function<bool(long long done, long long total)>;

// The shares that `palimpsest fit --quick` writes, of the first `tokens` of `text`, [heads]; empty: `progress` returned
// false. Throws Error as head_profile() does.
std::vector<double> quick_shares(Decoder& decoder, const Vocabulary& vocabulary, const std::string& text, int tokens,
                                 const ShareProgress& progress);

// Empty `file`: none, and `problem` says why, unless none is wanted.
struct OwnShares {
  std::string file = {};     // for SessionOptions::profile_file
  std::string problem = {};  // "... cannot be written"
  double seconds = 0;        // of the measurement; 0: they were there
};

// Shares of heads if the method of `options` would use some (wants_profile, evict/auto.h) and the model has no file of
// its own. Models with adapters, or with a context too small to repeat a text, get none.
OwnShares own_shares(const std::shared_ptr<Model>& model, const Vocabulary& vocabulary, const SessionOptions& options,
                     StepThreads threads, const ShareProgress& progress = {});

// The file of shares that were measured earlier for such a method; empty: none. For what shows sizes only.
std::string kept_shares(const Model& model, const SessionOptions& options);

}  // namespace palimpsest
