"""Networks of torchvision, timm and transformers, a family each, and recurrent ones, small and
without downloads: how each is made, called, and what its loss is."""
import importlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ada_train.torch import outputs

CLASSIFIERS = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet
    inception_v3 maxvit_t mnasnet0_5 mobilenet_v2 mobilenet_v3_small regnet_x_400mf regnet_y_400mf
    resnet18 resnext50_32x4d wide_resnet50_2 shufflenet_v2_x0_5 squeezenet1_0 swin_t swin_v2_t vgg11
    vgg11_bn vit_b_16""".split()
SEGMENTERS = """fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large""".split()
TIMM = """botnet26t_256 cait_xxs24_224 caformer_s18 coat_lite_tiny coatnet_nano_rw_224 convit_tiny
    convmixer_768_32 convnext_atto convnextv2_atto crossvit_tiny_240 cs3darknet_focus_s davit_tiny
    deit_tiny_patch16_224 dla34 dpn48b ecaresnet26t edgenext_xx_small efficientformer_l1
    efficientformerv2_s0 efficientnet_lite0 efficientvit_b0 efficientvit_m0 ese_vovnet19b_dw
    eva02_tiny_patch14_224 fastvit_t8 fbnetc_100 focalnet_tiny_srf gcvit_xxtiny gernet_s ghostnet_050
    gmlp_ti16_224 hardcorenas_a hgnet_tiny hgnetv2_b0 hiera_tiny_224 hrnet_w18_small
    inception_next_atto lambda_resnet26t lcnet_050 levit_128s mambaout_femto mixer_s32_224 mixnet_s
    mobilenetv4_conv_small_035 mobileone_s0 mobilevit_xxs mobilevitv2_050 mvitv2_tiny nest_tiny
    nf_resnet26 pit_ti_224 poolformer_s12 pvt_v2_b0 rdnet_tiny regnetz_005 repghostnet_050 repvgg_a0
    repvit_m0_9 res2net50_14w_8s resmlp_12_224 resnest14d resnet10t resnetv2_50 rexnet_100 selecsls42
    sequencer2d_s seresnet18 seresnext26t_32x4d shvit_s1 skresnet18 starnet_s1 swiftformer_xs
    swin_tiny_patch4_window7_224 swinv2_cr_tiny_ns_224 tiny_vit_5m_224 tnt_s_patch16_224
    twins_svt_small visformer_tiny vit_tiny_patch16_224 volo_d1_224 xception41
    xcit_nano_12_p16_224""".split()
TIMM_SIZES = {"efficientformer_l1": 224, "crossvit_tiny_240": 240}
TEXTS = """albert apertus arcee aria_text bart bert big_bird bigbird_pegasus biogpt bitnet blenderbot
    bloom canine codegen cohere convbert ctrl deberta deberta-v2 deepseek_v3 deepseek_v32 diffllama
    distilbert doge dpr electra ernie4_5 esm exaone4 falcon fnet fsmt gemma gemma2
    gemma3_text glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe helium ibert
    imagegpt jamba jetmoe led lfm2 llama llama4_text longformer longt5 m2m_100 mamba mamba2 marian
    minimax mistral mixtral mobilebert modernbert mpnet mpt mra nanochat nllb-moe nystromformer olmo2
    olmoe openai-gpt opt pegasus_x persimmon phi phi3 phimoe prophetnet qwen2 qwen2_moe qwen3
    qwen3_moe qwen3_next recurrent_gemma rembert roberta roformer rwkv splinter squeezebert
    stablelm starcoder2 switch_transformers t5 tapas xglm xlm xlnet yoso zaya""".split()
SENSES = """audio-spectrogram-transformer beit bit clip_vision_model data2vec-audio data2vec-vision
    deit dinov2 dinov3_vit dpt focalnet glpn hiera hubert levit mobilenet_v2 mobilevit pixtral
    poolformer pvt_v2 regnet resnet segformer sew sew-d siglip_vision_model speech_to_text
    swiftformer unispeech unispeech-sat vit vit_mae vit_msn wav2vec2 wav2vec2-conformer wavlm whisper
    yolos""".split()
# Of a configuration, the keys that its class knows.
SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "intermediate_size": 32, "head_dim": 8, "rotary_dim": 4,
         "n_embd": 16, "n_layer": 2, "n_head": 2, "d_model": 16, "num_layers": 2, "num_heads": 2,
         "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "n_layers": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_ff": 32,
         "d_kv": 8, "ffn_dim": 32, "embedding_size": 16, "dim": 16, "hidden_dim": 32, "n_heads": 2,
         "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4,
         "moe_intermediate_size": 16, "word_embed_proj_dim": 16, "max_position_embeddings": 64,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "image_size": 32, "patch_size": 8,
         "num_mel_bins": 16, "conv_dim": [16, 16], "conv_stride": [5, 4], "conv_kernel": [10, 8],
         "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
         "depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32], "embed_dim": 16, "n_inner": 32,
         "embed_dims": [16, 16, 32, 32], "ffn_hidden_size": 32, "num_encoder_layers": 2,
         "num_decoder_layers": 2, "encoder_hidden_size": 16, "mamba_d_state": 8, "state_size": 8,
         "time_step_rank": 4, "max_source_positions": 32, "max_target_positions": 32, "n_ctx": 64,
         "n_positions": 64, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
         "qk_nope_head_dim": 8, "v_head_dim": 8, "emb_dim": 16, "hidden_dropout_prob": 0.1}
OWN = {  # None: the class's own default
    "audio-spectrogram-transformer": {"patch_size": 16, "max_length": 64},
    "bit": {"num_groups": 4}, "falcon": {"head_dim": None},
    "deepseek_v3": {"head_dim": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
                    "first_k_dense_replace": 1},
    "glpn": {"num_attention_heads": [1, 1, 2, 2]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "hiera": {"image_size": [64, 64], "patch_size": [7, 7], "num_heads": [1, 2, 4, 8]},
    "jamba": {"use_cache": False},
    "levit": {"num_attention_heads": [2, 2, 2], "depths": [1, 1, 1], "hidden_sizes": [16, 16, 32],
              "key_dim": [8, 8, 8], "image_size": 64, "patch_size": 16},
    "mamba": {"conv_kernel": 4},
    "mamba2": {"conv_kernel": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "olmoe": {"num_experts_per_tok": 2},
    "prophetnet": {"num_hidden_layers": None, "num_encoder_attention_heads": 2,
                   "num_decoder_attention_heads": 2},
    "pvt_v2": {"num_attention_heads": [1, 1, 2, 2]}, "qwen3_moe": {"num_experts_per_tok": 2},
    "qwen3_next": {"use_cache": False, "num_experts_per_tok": 2},
    "recurrent_gemma": {"use_cache": False, "lru_width": 16},
    "segformer": {"num_attention_heads": [1, 2, 2, 2], "patch_sizes": [7, 3, 3, 3]},
    "speech_to_text": {"input_feat_per_channel": 16, "conv_channels": 16},
    "xlnet": {"max_position_embeddings": None}, "yolos": {"image_size": [32, 32]}}


class Recurrent(nn.Module):
    """`again`: the layer before it is computed again in the backward pass."""

    def __init__(self, kind, again=False):
        super().__init__()
        self.first, self.net, self.last = nn.Linear(8, 8), kind(8, 6), nn.Linear(6, 3)
        self.again = again

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False) if self.again else self.first(x)
        if isinstance(self.net, nn.RNNCellBase):
            state = None
            for part in x:
                state = self.net(part, state)
            y = state[0] if isinstance(state, tuple) else state
        else:
            y = self.net(x)[0]
        return {"logits": self.last(y)}


def loss_of(found):
    """Of what a network gives: the sum of its losses, else a square of all its outputs."""
    losses = [x for x in outputs.tensors(found) if x.requires_grad and x.dim() == 0]
    return sum(losses) if losses else sum(
        x.abs().square().float().mean() for x in outputs.logits(found))


def _drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def recurrent():
    for kind in (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        for again in (False, True):
            for dtype in (torch.float32, torch.float64):
                name = f"{kind.__name__}-{again}-{str(dtype).rpartition('.')[2]}"
                yield (name, lambda kind=kind, again=again, dtype=dtype:
                       Recurrent(kind, again).to(dtype), [_drawn(5, 4, 8, dtype=dtype)])


def _slim(net):
    """Without classifiers of a hundred million weights."""
    last = getattr(net, "classifier", None)
    found = [part for part in last or () if isinstance(part, nn.Linear)] if isinstance(
        last, nn.Sequential) else []
    if len(found) == 3:
        net.classifier = nn.Sequential(nn.Dropout(), nn.Linear(found[0].in_features, 16),
                                       nn.ReLU(True), nn.Linear(16, 10))
    return net


def torchvision():
    models = importlib.import_module("torchvision").models
    for name in CLASSIFIERS:
        options = {"num_classes": 10}
        options.update({"init_weights": False} if name in ("googlenet", "inception_v3") else {})
        size = 224 if name == "maxvit_t" else 96 if name == "inception_v3" else 64
        if name == "vit_b_16":
            yield name, lambda: models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10), [
                _drawn(2, 3, 32, 32)]
            continue
        yield (name, lambda name=name, options=options: _slim(models.get_model(
            name, weights=None, **options)), [_drawn(2, 3, size, size)])
    for name in SEGMENTERS:
        options = {"weights": None, "weights_backbone": None, "num_classes": 5}
        yield name, lambda name=name, options=options: models.get_model(name, **options), [
            _drawn(2, 3, 64, 64)]
    yield from _detectors(models)


def _detectors(models):
    """Each family on a small backbone."""
    made = models.detection
    last = importlib.import_module("torchvision.ops.feature_pyramid_network").LastLevelP6P7

    few = {"rpn_post_nms_top_n_train": 50, "box_batch_size_per_image": 16}
    masks, points = made.mask_rcnn, made.keypoint_rcnn

    def on(kind, classes, high=False, **rest):
        options = {"returned_layers": [2, 3, 4], "extra_blocks": last(256, 256)} if high else {}
        backbone = made.backbone_utils.resnet_fpn_backbone(
            backbone_name="resnet18", weights=None, trainable_layers=5, **options)
        return kind(backbone, classes, min_size=64, max_size=64, **rest)
    makers = {
        "faster_rcnn": lambda: on(made.FasterRCNN, 3, **few),
        "mask_rcnn": lambda: on(
            made.MaskRCNN, None, mask_head=masks.MaskRCNNHeads(256, (16, 16), 1),
            box_predictor=made.faster_rcnn.FastRCNNPredictor(1024, 3),
            mask_predictor=masks.MaskRCNNPredictor(16, 16, 3), **few),
        "keypoint_rcnn": lambda: on(
            made.KeypointRCNN, 2, keypoint_head=points.KeypointRCNNHeads(256, (16, 16)),
            keypoint_predictor=points.KeypointRCNNPredictor(16, 17), **few),
        "retinanet": lambda: on(made.RetinaNet, 3, True), "fcos": lambda: on(made.FCOS, 3, True),
        "fasterrcnn_mobilenet": lambda: made.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64),
        "ssdlite": lambda: made.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=3)}
    boxes = torch.tensor([[4.0, 6, 40, 50], [20, 10, 60, 44]])
    corners = boxes[:, None, :2].expand(2, 17, 2)
    target = {"boxes": boxes, "labels": torch.tensor([1, 1]),
              "masks": (_drawn(2, 64, 64) > 0).byte(),
              "keypoints": torch.cat([corners, torch.ones(2, 17, 1)], 2)}
    images = list(_drawn(2, 3, 64, 64).sigmoid())
    for name, make in makers.items():
        yield name, make, [images, [target, target]]


def timm():
    made = importlib.import_module("timm")

    def make(name):
        def one():
            try:
                return made.create_model(name, num_classes=10, drop_rate=0.1, img_size=size)
            except TypeError:  # of any size
                return made.create_model(name, num_classes=10, drop_rate=0.1)
        size = TIMM_SIZES.get(name, 64)
        return one
    for name in TIMM:
        size = TIMM_SIZES.get(name, 64)
        yield name, make(name), [_drawn(2, 3, size, size)]


def transformers():
    made = importlib.import_module("transformers")
    ids = torch.randint(3, 60, (2, 16), generator=torch.Generator().manual_seed(1))
    for name in TEXTS + SENSES:
        kind = made.CONFIG_MAPPING[name]
        whole = kind()
        known = {key: value for key, value in SMALL.items()
                 if hasattr(whole, key) or key in kind.attribute_map}
        known.update(OWN.get(name, {}))
        config = kind(**{key: value for key, value in known.items() if value is not None})
        size = getattr(config, "image_size", 64)
        size = size[0] if isinstance(size, (list, tuple)) else size
        sound = _drawn(2, 64, 16) if name.startswith("audio") else _drawn(2, 2000)
        features = _drawn(2, 16, 64) if name == "whisper" else _drawn(2, 64, 16)
        batches = {"input_ids": ids, "pixel_values": _drawn(2, 3, size, size),
                   "input_values": sound, "input_features": features}

        def make(config=config):
            return made.AutoModel.from_config(config)
        with torch.device("meta"):
            main = make().main_input_name
        batch = {main: batches[main]}
        if getattr(config, "is_encoder_decoder", False):
            batch["decoder_input_ids"] = ids[:, :8].clone()
        yield name, make, batch


FAMILIES = {"recurrent": recurrent, "torchvision": torchvision, "timm": timm,
            "transformers": transformers}
