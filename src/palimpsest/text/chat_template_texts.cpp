#include "palimpsest/text/chat_template_texts.h"

namespace palimpsest {
namespace {

// Tests compare them with libllama's.
constexpr NamedTemplate kNamed[] = {
    {"chatml",
     "{%- for message in messages -%}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
     "'<|im_end|>\\n' "
     "}}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"},
    {"gemma",
     "{%- set ns = namespace(system='') -%}{%- for message in messages -%}"
     "{%- if message['role'] == 'system' -%}{%- set ns.system = message['content'] | trim -%}{%- else -%}"
     "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}"
     "{%- if ns.system and message['role'] != 'assistant' -%}{{ ns.system + '\\n\\n' }}{%- set ns.system = '' -%}"
     "{%- endif -%}{{ message['content'] | trim + '<end_of_turn>\\n' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"},
    {"llama3",
     "{%- for message in messages -%}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
     "message['content'] | trim + '<|eot_id|>' }}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"},
    {"phi3",
     "{%- for message in messages -%}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
     "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
    {"zephyr",
     "{%- for message in messages -%}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|endoftext|>\\n' }}"
     "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
};

}  // namespace

std::span<const NamedTemplate> named_templates() {
  return kNamed;
}

const std::string_view kToolTemplate = R"jinja(
{%- if tools %}
    {{- '<|im_start|>system\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- call.name }}
            {{- '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
)jinja";

}  // namespace palimpsest
