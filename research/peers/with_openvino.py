"""OpenVINO GenAI: its paged pipeline, with cache eviction if `method` says so. `method`: {} or
{"start": 32, "recent": 128, "max": 256, "snapkv_window": 8}: see its CacheEvictionConfig."""
import numpy as np
import openvino as ov
import openvino_genai as genai

import job


def pipeline(task):
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1  # GiB
    scheduler.max_num_batched_tokens = 512
    scheduler.enable_prefix_caching = False
    if evicts := task["method"]:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = genai.CacheEvictionConfig(
            evicts["start"], evicts["recent"], evicts["max"], genai.AggregationMode.NORM_SUM, False,
            evicts.get("snapkv_window", 8))
    return genai.LLMPipeline(task["model"], "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=task["threads"])


def main():
    task = job.read()
    pipe = pipeline(task)
    config = genai.GenerationConfig(max_new_tokens=task["tokens"], do_sample=False, ignore_eos=True)

    def write(prompt, heard=lambda _: None):
        ids = np.array([prompt], dtype=np.int64)
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        return pipe.generate(inputs, config, heard)

    if task["kind"] == "answers":
        return job.answer(tokens=[list(write(p).tokens[0]) for p in task["prompts"]], version=genai.__version__)
    write(task["prompts"][0])
    metrics = write(task["prompts"][0]).perf_metrics
    job.answer(ttft_s=metrics.get_ttft().mean / 1e3, tpot_s=metrics.get_tpot().mean / 1e3, version=genai.__version__)


main()
