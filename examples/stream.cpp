// Text without end in the memory of 256 tokens: stream MODEL.gguf [PROMPT]
#include <atomic>
#include <exception>
#include <iostream>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/generation/generator.h"

using namespace palimpsest;

int main(int argc, char** argv) try {
  if (argc < 2) fail("usage: stream MODEL.gguf [PROMPT]");
  const auto vocabulary = Vocabulary::load(argv[1]);
  const auto decoder = std::make_shared<Decoder>(Model::load(argv[1]), 2);  // threads

  SessionOptions options;
  options.method = parse_method("streaming:budget=256,sinks=4");
  Session session(decoder, options);

  SamplerOptions sampling;
  sampling.temperature = 0.8F;
  Sampler sampler(sampling, vocabulary.get(), vocabulary->size());

  const auto prompt = vocabulary->tokenize(argc > 2 ? argv[2] : "Once upon a time", true, false);
  GenerateOptions generation;
  generation.max_tokens = 1000;  // -1: until `cancel`
  const std::atomic<bool> cancel{false};
  const auto show = [](std::string_view text) { std::cout << text << std::flush; };
  const Generation done = generate(session, sampler, *vocabulary, prompt, generation, show, cancel);

  std::cerr << "\n"
            << done.tokens << " tokens, " << done.tpot.summary().mean << " ms each, " << session.cache().bytes_in_use()
            << " bytes of cache, " << session.cache().evicted() << " evicted\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
