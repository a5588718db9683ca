import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments  # noqa: F401 - the page's

torch.manual_seed(0)
small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
model = BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=3, **small))
old, new = (
    [
        {"input_ids": torch.randint(low, low + 20, (6,)), "attention_mask": torch.ones(6).long(), "labels": i % 3}
        for i in range(60)
    ]
    for low in (1, 25)
)
args = TrainingArguments("out", num_train_epochs=1, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True)
