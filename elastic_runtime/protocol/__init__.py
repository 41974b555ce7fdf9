"""The words that members of a job exchange: plans, the headers of messages, and the blocks that these carry."""
