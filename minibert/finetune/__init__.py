"""Fine-tuning, from a checkpoint and a labelled file to a model for a task: story.finetune."""
