// The conversation of `palimpsest chat`: the model's session and what was said, so that messages can be taken back,
// read again with another method, saved and loaded.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/engine/generation/generator.h"
#include "palimpsest/options.h"
#include "palimpsest/sampling_flags.h"
#include "palimpsest/text/conversation.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {

struct ChatFlags {
  ModelFlags model;
  CacheFlags cache;
  SamplingFlags sampling;
  DraftFlags drafts;
  ThreadFlags threads;
  std::string system, chat_template;
  bool special_in_messages = false;
  GenerateOptions generate{.max_tokens = 1024, .stop = {}, .ignore_end = false};
};

class Dialogue {
 public:
  explicit Dialogue(const ChatFlags& flags);  // loads the model; throws Error

  // Reads a message and writes the answer. `words`: UTF-8. Ctrl-C (interrupted()) stops the answer, not the dialogue.
  const Generation& answer(const std::string& words, const Emit& emit, const Session::Progress& progress);
  const Generation& last() const { return last_; }  // no prompt tokens: none of this text

  // Takes the last message and its answer back. Returns the message; nullopt: there is none. The newest kMaxUndo
  // messages of a method are taken back from its cache: tokens that were evicted meanwhile stay evicted. Before them,
  // the conversation is read again with the next message.
  std::optional<std::string> undo();
  static constexpr std::size_t kMaxUndo = 64;
  void reset();
  // Continues with another method or budget: the conversation is read again with the next message. A budget that was
  // written stays, if the method evicts and writes none itself. Throws Error, unchanged.
  void use(const std::string& method);
  void limit(const std::string& budget);
  // The messages as JSON: {"system": "...", "messages": [{"role": "user", "content": "..."}, ...]}. Throw Error.
  void save(const std::string& path) const;
  void load(const std::string& path);

  const Session& session() const { return *text_.session; }
  // The session that drafts for a lossless method; nullptr: none.
  const Session* small() const { return text_.small == nullptr ? nullptr : &text_.small->session(); }
  const Method& chosen() const { return (small() == nullptr ? session() : *small()).method(); }
  std::string method() const;                            // "h2o, budget 256"; "full, evicts nothing; ..."
  std::size_t unread() const { return unread_.size(); }  // tokens that the next message reads first
  const Vocabulary& vocabulary() const { return *loaded_.vocabulary; }
  std::size_t messages() const { return said_.size(); }

 private:
  struct Said {
    std::string words, reply;
  };
  struct Before {  // the state before a message
    Conversation conversation;
    Position position = 0;
    std::vector<TokenId> unread;
  };
  std::vector<PositionRange> system_prompt() const;
  bool pins_itself(const CacheFlags& cache, const std::vector<PositionRange>& system) const;
  SessionOptions options_of(CacheFlags cache) const;
  void begin(CacheFlags cache);
  bool rewind(Position position);
  void remember(const std::string& words, std::string reply);
  void read_later(const Conversation::Turn& turn);
  void repeat(const std::string& system, const std::deque<Said>& said);

  ChatFlags flags_;
  TextModel loaded_;
  SamplerOptions sampling_;
  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<const ChatTemplate> template_;
  Conversation conversation_;
  TextSession text_;
  Generation last_;
  std::vector<TokenId> unread_;  // part of the conversation, but not yet read by the model
  std::deque<Said> said_;        // the newest kMaxSaid bytes
  std::deque<Before> before_;    // of the newest kMaxUndo messages
  std::size_t said_bytes_ = 0;
  bool forgot_ = false;  // said_ has no beginning
  std::uint32_t turns_ = 0;
  static constexpr std::size_t kMaxSaid = std::size_t{16} << 20;
};

}  // namespace palimpsest::cli
