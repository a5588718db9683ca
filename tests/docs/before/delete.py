import torch

from selfreminder import Reminder

remembering = Reminder()
remembering.remember(torch.nn.Linear(8, 3), torch.randn(300, 8), torch.arange(300) % 3, per_class=60)
remembering.save("memory.safetensors")
