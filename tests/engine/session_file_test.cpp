// Snapshots written by earlier versions (tests/engine/sessions) can be loaded and continue with the same text as in
// those versions. Their model is the default model of that time (commit aa03aa8).
//
//   palimpsest run -m tests/engine/sessions/model.gguf -n 40 --temp 0 --ignore-eos --repeat-penalty 1.1
//     -p "Once upon a time there was a little girl named Sara who loved to play in the garden with her dog."
//     --page-size 16 --cache-type q8_0 --method h2o:budget=16,recent=6,positions=cache --save h2o-v1.snap
//     (commit ccede86)
//   ... --method ems:budget=16,recent=4,tau=0.1 --save ems-v1.snap
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

struct Case {
  const char *file, *method, *text;
};

TEST(SessionFile, TheFirstFormatIsRead) {
  const std::string source = source_dir().string();
  const std::string model = source + "/tests/engine/sessions/model.gguf";
  const auto decoder = std::make_shared<Decoder>(Model::load(model, {.repack = false}),
                                                 1);  // the matrix products of the version that wrote the texts
  const auto vocabulary = Vocabulary::load(model);
  for (const Case& each :
       {Case{"h2o-v1.snap", "h2o:budget=16,recent=6,positions=cache",
             "'t have been so much?\" asked The secret number,\" said Alan.\n"
             "\"I shall never forget this birthday,\" said Alan.\n"
             "The road was long. First Alan came to the church. A"},
        Case{"ems-v1.snap", "ems:budget=16,recent=4,tau=0.1,similarity=clipped,merged-key=unit,zero-class=off",
             " been so much as if I am sure you think you're it.\"\n"
             "\"I can't tell you. Lady Sirpealal to the house of the door of the man,"}}) {
    SCOPED_TRACE(each.file);
    SessionOptions options;
    options.method = parse_method(each.method);
    options.cache_type = CacheType::kQ8_0;
    options.page_size = 16;
    Session session(decoder, options);
    SamplerOptions how;
    how.temperature = 0;
    how.repeat_penalty = 1.1F;
    Sampler sampler(how, vocabulary.get(), vocabulary->size());
    const SnapshotText text = load_snapshot(source + "/tests/engine/sessions/" + each.file, session, &sampler);
    EXPECT_EQ(text.tokens.size(), 24 + 40U);
    ASSERT_GE(text.unread, 0);
    EXPECT_EQ(session.position(), 24 + 39);
    // Equal, or different from a near tie on: the stored bytes of merged tokens depend on the rounding of attention,
    // and scores of the first and last tokens were means over fewer neighbours.
    const std::string expected = each.text;
    std::string written;
    std::span<const float> logits = session.prefill(std::span(&text.unread, 1));
    for (int n = 0; n < 40; ++n) {
      const TokenId token = sampler.sample(logits);
      if (!expected.starts_with(written + vocabulary->piece(token))) {
        float stored = -1e9F;
        for (TokenId t = 0; t < vocabulary->size(); ++t)
          if (const std::string piece = vocabulary->piece(t);
              !piece.empty() && expected.substr(written.size()).starts_with(piece))
            stored = std::max(stored, logits[at(t)]);
        EXPECT_LE(logits[at(token)] - stored, 0.2F) << written << "|" << vocabulary->piece(token);
        EXPECT_GE(n, 20) << written;
        break;
      }
      written += vocabulary->piece(token);
      if (n < 39) logits = session.decode(token);
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
