"""The problems that an engine has of a model, from the model's config.json."""

import json

import pytest

from triton_ops.cli.app import main
from triton_ops.exceptions import SettingsError
from triton_ops_serving.model import Model

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_local_experts": 8,
    "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]},
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3, "quantization_config": FP8,
}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_experts": 16, "num_experts_per_tok": 2,
    "mamba_d_state": 16, "mamba_expand": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
NEMOTRON = {
    "model_type": "nemotron_h", "hidden_size": 4480, "mamba_num_heads": 128, "mamba_head_dim": 80,
    "ssm_state_size": 128, "expand": 2, "torch_dtype": "bfloat16", "mamba_ssm_cache_dtype": "float32",
}  # fmt: skip
BAMBA = {
    "model_type": "bamba", "hidden_size": 4096, "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_d_state": 128,
    "mamba_expand": 2,
}  # fmt: skip
BLOCKS = ",dtype=fp8_w8a8,block_shape=[128,128]"


def labels(values, engine="vllm", ranks=1, **options):
    return [(each.form.partition("-")[2], each.label) for each in Model(values, ranks, **options).problems(engine)]


@pytest.mark.parametrize(
    ("values", "ranks", "expected"),
    [
        (MIXTRAL, 1, [("moe", "E=8,N=14336")]),
        (MIXTRAL, 8, [("moe", "E=8,N=1792")]),
        (QWEN, 2, [("moe", "E=128,N=384")]),
        ({"model_type": "vl", "text_config": QWEN}, 1, [("moe", "E=128,N=768")]),
        ({**QWEN, "quantization_config": {"quant_method": "fp8"}}, 1, [("moe", "E=128,N=768,dtype=fp8_w8a8")]),
        (JAMBA, 4, [("moe", "E=16,N=3584"), ("mamba", "headdim=2048,dstate=16,cache_dtype=float16")]),
        (NEMOTRON, 8, [("mamba", "headdim=80,dstate=128,cache_dtype=float32")]),
        (BAMBA, 1, [("mamba", "headdim=64,dstate=128,cache_dtype=float16")]),
        (LLAMA, 2, [
            ("linear", f"N=3072,K=4096{BLOCKS}"), ("linear", f"N=4096,K=2048{BLOCKS}"),
            ("linear", f"N=14336,K=4096{BLOCKS}"), ("linear", f"N=4096,K=7168{BLOCKS}"),
        ]),
        (DEEPSEEK, 8, [
            ("moe", f"E=256,N=256{BLOCKS}"), ("linear", f"N=2112,K=7168{BLOCKS}"), ("linear", f"N=3072,K=1536{BLOCKS}"),
            ("linear", f"N=4096,K=512{BLOCKS}"), ("linear", f"N=7168,K=2048{BLOCKS}"),
            ("linear", f"N=4608,K=7168{BLOCKS}"), ("linear", f"N=7168,K=2304{BLOCKS}"),
            ("linear", f"N=512,K=7168{BLOCKS}"), ("linear", f"N=7168,K=256{BLOCKS}"),
        ]),
    ],
)  # fmt: skip
def test_the_tables_of_a_model(values, ranks, expected):
    assert labels(values, ranks=ranks) == expected


def test_what_is_taken_for_something_else_is_said():
    odd = {**LLAMA, "num_attention_heads": 24, "num_key_value_heads": 6, "dtype": "torch.int7", "head_dim": 128}
    model = Model({"model_type": "vl", "llm_config": odd, "quantization_config": FP8}, 4)
    assert "qkv_proj" not in [each.layer for each in model.problems("vllm")]
    assert model.remarks == [
        "the dtype torch.int7 is not understood: bfloat16 is taken",
        "heads of keys: 6 among 4 ranks is no whole number of columns; left out",
    ]
    assert Model({"torch_dtype": "torch.float16"}).dtype == "float16"


def test_a_rank_may_have_whole_experts():
    assert labels(QWEN, ranks=8, expert_parallel=True) == [("moe", "E=16,N=768")]


def test_sglang_has_a_table_for_each_product_and_takes_a_shared_expert_for_one_more():
    assert labels(QWEN, "sglang") == [("moe", "E=128,N=768"), ("moe", "E=128,N=768,down=True")]
    experts = [label for form, label in labels(DEEPSEEK, "sglang", 8) if form == "moe"]
    assert [label.split(",")[0] for label in experts] == ["E=256", "E=256", "E=257", "E=257"]
    problems = Model(DEEPSEEK, 8).problems("sglang")
    assert [each.extents["top_k"] for each in problems[:4]] == [8, 8, 9, 9]


def test_a_grouping_by_channel_is_read_from_compressed_tensors():
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    group = {"weights": weights, "input_activations": {"num_bits": 8, "type": "float"}}
    values = {**QWEN, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": group}}}
    assert labels(values) == [("moe", "E=128,N=768,dtype=fp8_w8a8")]
    assert labels(values, "sglang")[:1] == [("moe", "E=128,N=768,dtype=fp8_w8a8,per_channel_quant=True")]
    assert ("channelwise", "N=2048,K=4096,dtype=fp8_w8a8_channelwise") in labels(values, "sglang")


@pytest.mark.parametrize(
    ("values", "ranks", "said"),
    [
        ({**MIXTRAL, "quantization_config": {"quant_method": "awq"}}, 1, "quantisation by awq is not understood"),
        ({**MIXTRAL, "num_experts_per_tok": None}, 1, "there are experts, but not their width"),
        ({**QWEN, "num_experts": [64, 128]}, 1, r"num_experts is \[64, 128\], and no whole number"),
        (MIXTRAL, 5, "14336 among 5 ranks is no whole number of columns"),
        ({**DEEPSEEK, "num_attention_heads": None}, 32, "2048 among 32 ranks is no whole number of 128 columns"),
        ({**MIXTRAL, "quantization_config": {**FP8, "weight_block_size": "128"}}, 1, "quantisation by fp8 is not"),
        (
            {**MIXTRAL, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": 1}}},
            1,
            "quantisation by compressed-tensors is not",
        ),
        ({**MIXTRAL, "num_local_experts": 8.0}, 1, "num_local_experts is 8.0, and no whole number above 0"),
        ({**MIXTRAL, "num_experts_per_tok": 9}, 1, "a token has 9 of 8 experts"),
        ({**MIXTRAL, "quantization_config": ["fp8"]}, 1, "quantisation .'fp8'. is not understood"),
        ({**LLAMA, "quantization_config": {**FP8, "weight_block_size": [0, 0]}}, 1, "quantisation by fp8 is not"),
        ({**NEMOTRON, "mamba_head_dim": 10**9}, 1, "states of 1000000000 times 128 values are larger than any cache"),
        ({"model_type": "gpt2"}, 1, "nothing of this gpt2 has a table in vllm"),
    ],
)
def test_what_is_not_understood_is_an_error_where_nothing_is_left(values, ranks, said):
    with pytest.raises(SettingsError, match=said):
        Model(values, ranks).problems("vllm")


def test_what_is_left_out_is_said(tmp_path, cli):
    path = tmp_path / "config.json"
    quantisation = {**FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.q_proj"]}
    path.write_text(json.dumps({**JAMBA, "quantization_config": {**quantisation, "quant_method": "gptq"}}))
    ran = cli("engine", "list", "vllm", "--model", path)
    assert ran.code == 0
    assert "headdim=8192,dstate=16" in ran.out
    assert "E=16" not in ran.out
    assert ran.err == "not listed: quantisation by gptq is not understood: what it quantises is left out\n"
    path.write_text(json.dumps({**LLAMA, "quantization_config": quantisation}))
    assert (
        "listed as if quantised: 1 modules that are not, such as model.layers.0"
        in cli("engine", "list", "vllm", "--model", path).err
    )


@pytest.mark.parametrize(
    ("content", "said"), [("[1]", "is no config.json"), ("{", "is no config.json"), (None, "No such")]
)
def test_a_file_that_is_no_model_is_one_error(content, said, tmp_path, capsys):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    assert main(["engine", "list", "vllm", "--model", str(path)]) == 2
    assert said in capsys.readouterr().err
    path.write_text(json.dumps(MIXTRAL))
    assert main(["engine", "list", "trt", "--model", str(path)]) == 2
    assert main(["engine", "list", "vllm", "--model", str(path), "--tp", "0"]) == 2


def test_a_list_has_every_size_as_json(tmp_path, cli):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MIXTRAL))
    document = json.loads(cli("engine", "list", "vllm", "--model", path, "--tp", "8", "--json").out)
    (problem,) = document["problems"]
    assert (problem["facts"], problem["extents"]) == ({"E": 8, "N": 1792}, {"K": 4096, "columns": 3584, "top_k": 2})
    assert (problem["row"], len(problem["sizes"]), problem["sizes"][-1]) == ("M", 18, 4096)
